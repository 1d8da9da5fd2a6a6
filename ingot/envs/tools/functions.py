"""The functions of a user's file as tools.

The user wrote them, so they run as the user, in one process (`functions_worker.py`) that stays for the next call. A call that
misses its deadline ends the process and all that it started; the next call starts another.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ingot.envs.tools.tool import DEADLINE, Tool
from ingot.sandbox.processes import end
from ingot.workspace.errors import ArtifactError

WORKER = Path(__file__).with_name("functions_worker.py")
START_SECONDS = 60.0  # the user's file may import something large


def load_functions(path: Path, deadline: float = DEADLINE) -> dict[str, Tool]:
    """A tool for every public function of the Python file at `path`."""
    if path.suffix != ".py" or not path.is_file():
        raise ArtifactError("there is no such Python file", place=f"--tools {path}", fix="give a file of functions")
    worker = _Worker(path.resolve(), deadline)

    def tool(schema: dict[str, Any]) -> Tool:
        return Tool(schema, lambda arguments: worker.call(schema["name"], arguments))

    return {schema["name"]: tool(schema) for schema in worker.start()}


class _Worker:
    """The process, one call at a time."""

    def __init__(self, path: Path, deadline: float) -> None:
        self.path, self.deadline = path, deadline
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> list[dict[str, Any]]:
        """Start the process; the schemas of its functions."""
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C stops the answer that is printed, not the tools
        )
        answer = self._read(START_SECONDS)
        if answer is None or "error" in answer:
            self._kill()
            raise ArtifactError(
                answer["error"] if answer else f"the file was not loaded in {START_SECONDS:.0f} seconds, or it exits",
                place=str(self.path),
                fix="give a file whose public functions have hints for all parameters and a docstring",
            )
        return list(answer["schemas"])

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """What the function says within the deadline."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                try:
                    self.start()
                except ArtifactError as error:
                    return f"error: {error}"
            assert self._process is not None and self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps({"name": name, "arguments": arguments}).encode() + b"\n")
                self._process.stdin.flush()
                answer = self._read(self.deadline)
            except BrokenPipeError:
                answer = None
            except KeyboardInterrupt:
                self._kill()  # its answer must not become the answer to the next call
                raise
            if answer is None:
                ended = self._process.poll() is not None
                self._kill()
                return "error: the tool's process ended" if ended else f"error: no answer in {self.deadline:g} seconds"
            return str(answer["result"])

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None if the time is over or the process ends."""
        assert self._process is not None and self._process.stdout is not None
        pipe, data, end = self._process.stdout.fileno(), b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                part = os.read(pipe, 65_536)
                if not part:
                    self._process.wait(timeout=5)
                    return None
                data += part
        return dict(json.loads(data))

    def _kill(self) -> None:
        if self._process is not None:
            with self._process:  # closes its pipes
                end(self._process)
            self._process = None
