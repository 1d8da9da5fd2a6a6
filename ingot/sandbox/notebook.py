"""A Python session: names stay between pieces of code, and the value of a last expression is printed.

with Notebook(Limits(seconds=30)) as notebook:
    notebook.run("import math")
    notebook.run("math.pi").output            # "3.141592653589793\\n"
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from ingot.sandbox.program import EndedBy, Limits, Program
from ingot.sandbox.session import Session, SessionOutput
from ingot.workspace.errors import IngotError

SOURCE = Path(__file__).parent / "inside" / "notebook.py"


class Notebook(Session):
    """Python, as the source in `inside/notebook.py` runs it."""

    def __init__(self, limits: Limits, environment: dict[str, str] | None = None) -> None:
        source = SOURCE.read_text(encoding="utf-8")
        super().__init__(Program(source=source, environment=environment or {}), limits)

    def run(self, code: str, seconds: float | None = None) -> SessionOutput:
        """Run code within `seconds` (the session's limit unless said otherwise)."""
        output, reply, stopped = self._call({"run": code}, self._limits(seconds))
        return SessionOutput(output.decode("utf-8", "replace"), int(reply.get("status", -1)), stopped)

    def read(self, path: str) -> bytes:
        """The bytes of a file."""
        reply = self._file(path, {"read": path, "most": self.limits.file + 1})
        data = base64.b64decode(str(reply.get("data", "")))
        self._check_size(len(data))
        return data

    def write(self, path: str, data: bytes) -> None:
        """Write a file, and the folders it is in."""
        self._check_size(len(data))
        self._file(path, {"write": path, "data": base64.b64encode(data).decode()})

    def _file(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        _, reply, _ = self._call(request, self.limits)
        if reply.get("status") != 0:
            raise IngotError(str(reply.get("error", self.ended)), place=path, fix="name another path")
        return reply

    def _call(self, request: dict[str, Any], limits: Limits) -> tuple[bytes, dict[str, Any], EndedBy | None]:
        data = json.dumps(request).encode()

        def answer(control: bytes) -> bytes | None:
            size = int.from_bytes(control[:4], "big")
            return control[4:] if len(control) >= 4 and len(control) >= size + 4 else None

        output, found, stopped = self._exchange(len(data).to_bytes(4, "big") + data, answer, limits)
        try:
            reply = json.loads(found or b"{}")
        except (ValueError, RecursionError):  # the code in a session can write where its answers go
            reply = None
        if not isinstance(reply, dict):
            self._end("its process answers with nonsense")
            reply = {}
        return output, reply, stopped
