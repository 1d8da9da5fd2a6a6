"""Runs the Python code on stdin under limits; started by `python.py` in an empty folder. Standard library only.

The value of a last line that is an expression is printed, as a notebook does. Limits: processor time, memory, the size of
files; where the kernel allows an unprivileged process to do so, there is no network, and nothing that the code starts outlives
it. This keeps accidents small. It is no wall against an attacker: the code runs as the user and can read the user's files.
"""

from __future__ import annotations

import ast
import ctypes
import os
import resource
import sys
from typing import Any

MEMORY = 2**30
FILE_SIZE = 2**24
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000


def limit(seconds: int) -> None:
    """Lower what this process may use; there is no way back up."""
    for kind, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def set_apart() -> None:
    """Leave the network, and go on among processes that the kernel ends with the first of them; where that is forbidden, stay.

    The first is a child that only waits, for a grandchild: the code should find signals and orphans as they are anywhere else.
    """
    if sys.platform == "linux" and ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET) == 0:
        go_on_in_child()
        go_on_in_child()


def go_on_in_child() -> None:
    """Returns in a new process; this one waits for it, and ends as it does."""
    child = os.fork()
    if child == 0:
        return
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0 and os.getpid() != 1:  # the first process of a space cannot end itself by a signal
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def main() -> None:
    """Run the code; a failure ends in Python's own traceback on stderr."""
    limit(int(sys.argv[1]))
    set_apart()
    tree = ast.parse(sys.stdin.read(), "<code>")
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Interactive([tree.body.pop()])
        parts: list[Any] = [compile(tree, "<code>", "exec"), compile(last, "<code>", "single")]
    else:
        parts = [compile(tree, "<code>", "exec")]
    names: dict[str, Any] = {"__name__": "__main__"}
    for part in parts:
        exec(part, names)


if __name__ == "__main__":
    main()
