"""A Python session: names stay between pieces of code, and the value of a last line that is an expression is printed.

It is run as source in a cell. A request on stdin is a length (4 bytes) and JSON: {"run": code}, {"read": path, "most": bytes}
or {"write": path, "data": base64}. The answer on descriptor 3 has the same form: {"status": 0 or 1} and for a file {"data"}, or
{"error"}. What the code prints goes to stdout, with tracebacks in order.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import sys
import traceback
from pathlib import Path
from signal import SIG_IGN, SIGINT, default_int_handler, signal
from typing import Any

CODE = "<code>"


def main() -> None:
    """Answer requests until stdin closes."""
    requests, answers = os.dup(0), os.dup(3)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)  # code that reads its input must not read our requests
    os.dup2(1, 2)
    os.closerange(3, min(requests, answers))
    _on_interrupt(SIG_IGN)
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    while head := _read(requests, 4):
        request = json.loads(_read(requests, int.from_bytes(head, "big")))
        answer = _answer(request, names)
        data = json.dumps(answer).encode()
        left = memoryview(len(data).to_bytes(4, "big") + data)
        while left:
            left = left[os.write(answers, left) :]


def _answer(request: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    try:
        if "run" in request:
            return {"status": _run(request["run"], names)}
        if "write" in request:
            path = Path(request["write"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(request["data"]))
            return {"status": 0}
        with Path(request["read"]).open("rb") as file:
            return {"status": 0, "data": base64.b64encode(file.read(request["most"])).decode()}
    except OSError as error:
        return {"status": 1, "error": str(error)}


def _run(code: str, names: dict[str, Any]) -> int:
    """Run code; a traceback is printed from the code's own first frame on."""
    try:
        _on_interrupt(default_int_handler)
        tree = ast.parse(code, CODE)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        exec(compile(tree, CODE, "exec"), names)
        exec(compile(ast.Interactive(last), CODE, "single"), names)
        return 0
    except BaseException as error:  # noqa: BLE001 - the code may fail in any way; the session goes on
        sys.stdout.flush()
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != CODE:
            frames = frames.tb_next
        traceback.print_exception(error.with_traceback(frames), file=sys.stderr)
        return 1
    finally:
        _on_interrupt(SIG_IGN)  # an interrupt that comes late must not end the session
        sys.stdout.flush()
        sys.stderr.flush()


def _on_interrupt(handler: Any) -> None:
    signal(SIGINT, handler)


def _read(descriptor: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = os.read(descriptor, count - len(data))
        if not part:
            return b""
        data += part
    return data


if __name__ == "__main__":
    main()
