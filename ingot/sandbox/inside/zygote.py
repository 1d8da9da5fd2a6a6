"""The process that stays in a sandbox and forks a cell for each program: starting one takes no new interpreter.

It speaks with `worker.py` over the socket that is its stdin. A request is a length (4 bytes), a JSON order and the files of
the program; the descriptors that the program is to have come with the length. While a program runs, one byte kills it (k)
or sends it SIGINT (i). The answer is a line of JSON: {"status": …} as wait(2) gives it, or {"error": text} if the cell
could not be made. The zygote never runs a program's code: a program's process returns from `serve`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from ingot.sandbox.inside import cell

MOST_DESCRIPTORS = 8
KILL, INTERRUPT = b"k", b"i"
PRELOADED = (
    "bisect", "collections", "copy", "datetime", "functools", "heapq", "itertools", "json", "math", "re", "string", "typing",
)  # fmt: skip
OURS = (
    "ingot",
    "ingot.sandbox",
    "ingot.sandbox.inside",
    *(f"ingot.sandbox.inside.{name}" for name in ("zygote", "cell", "kernel")),
)


def main() -> None:
    """Serve; then, in a program's process, become the program."""
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a job in the background of a script inherits that it is ignored
    requests = socket.socket(fileno=0)
    sys.path[:] = [path for path in sys.path if path != sys.argv[1]] + sys.argv[2:]
    for name in PRELOADED:
        importlib.import_module(name)
    compile("", "program.py", "exec")  # its first call is slow
    gc.freeze()
    requests.sendall(b"ready\n")
    order = serve(requests)
    requests.detach()
    if order["command"]:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores
        try:
            os.execve(order["command"][0], order["command"], order["environment"])
        except OSError as error:
            os.write(2, f"{order['command'][0]}: {error.strerror}\n".encode())
            os._exit(127)
    run(order)


def serve(requests: socket.socket) -> dict[str, Any]:
    """Answer requests, one after another, until the socket closes. Returns in the process of a program only."""
    while True:
        size, descriptors = _next_request(requests)
        order = json.loads(_read(requests, size))
        files = [_read(requests, size) for size in order["sizes"]]
        reading, low = os.pipe()
        writing = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, cell.NOTE)
        os.close(low)
        first = cell.enter(order, files, descriptors, writing)
        if first == 0:
            return dict(order)
        del files
        for descriptor in (*descriptors, writing):
            os.close(descriptor)
        answer = _attend(requests, first, reading, isolated=order["isolated"])
        os.close(reading)
        requests.sendall(json.dumps(answer).encode() + b"\n")


def _next_request(requests: socket.socket) -> tuple[int, list[int]]:
    """The length of the next order, and the descriptors that come with it.

    A wish for a program that had just ended may come first. No length begins like one: that order would have a gigabyte.
    """
    head, descriptors = b"", []
    while len(head) < 4:
        part, more, _, _ = socket.recv_fds(requests, 4 - len(head), MOST_DESCRIPTORS)
        if not part:
            os._exit(0)
        head = (head + part).lstrip(KILL + INTERRUPT)
        descriptors += more
    return int.from_bytes(head, "big"), descriptors


def _read(requests: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = requests.recv(min(count, 2**20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _attend(requests: socket.socket, first: int, note: int, *, isolated: bool) -> dict[str, Any]:
    """Wait for the end of a cell, and pass on what the other side wants meanwhile."""
    noted = b""
    waiting = select.poll()
    waiting.register(requests, select.POLLIN)
    waiting.register(note, select.POLLIN)
    open_note = True
    while open_note:
        for descriptor, _ in waiting.poll():
            if descriptor == note:
                part = os.read(note, 4096)
                noted += part
                open_note = bool(part)
                continue
            wish = requests.recv(1)
            if wish == INTERRUPT:
                os.kill(first, signal.SIGUSR1)
                continue
            _kill(first, isolated=isolated)
            if not wish:
                os._exit(0)
    _kill(first, isolated=isolated)  # without isolation, what is left of its group
    _, status = os.waitpid(first, 0)
    lines = dict(line.split(" ", 1) for line in noted.decode("utf-8", "replace").splitlines())
    if "error" in lines:
        return {"error": lines["error"]}
    return {"status": int(lines.get("status", status))}


def _kill(first: int, *, isolated: bool) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, for a group of zombies
        os.kill(first, signal.SIGKILL) if isolated else os.killpg(first, signal.SIGKILL)


def run(order: dict[str, Any]) -> NoReturn:
    """Run Python source as the main program of this process, as `python -c` would, and end.

    Python's own end of an interpreter frees every object, which takes longer than most programs; this one does what a program
    can see of it: threads are waited for, exit functions run, output is flushed.
    """
    os.environ.clear()
    os.environ.update(order["environment"])
    for name in OURS:
        del sys.modules[name]
    sys.argv = ["program.py"]
    sys.path.insert(0, "")
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # type: ignore[misc]
    names = sys.modules["__main__"] = types.ModuleType("__main__")
    status = _status_of(lambda: exec(compile(order["source"], "program.py", "exec"), names.__dict__))
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    status = max(status, _status_of(sys.stdout.flush), _status_of(sys.stderr.flush))
    os._exit(status)


def _status_of(work: Callable[[], object]) -> int:
    """The exit status that Python gives a program which ends as `work` does; a traceback is printed without our frames."""
    try:
        work()
    except SystemExit as request:
        if request.code is None or isinstance(request.code, int):
            return (request.code or 0) & 0xFF
        sys.stderr.write(f"{request.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001 - the program may fail in any way
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        return 1
    return 0
