"""Runs the Python code on stdin under limits; started by `python.py` in an empty folder. Standard library only.

The value of a last line that is an expression is printed, as a notebook does. Limits: processor time, memory, the size of
files; where the kernel allows an unprivileged process to do so, there is no network. This keeps accidents small. It is
no wall against an attacker: the code runs as the user and can read the user's files.
"""

from __future__ import annotations

import ast
import ctypes
import resource
import sys
from typing import Any

MEMORY = 2**30
FILE_SIZE = 2**24
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000


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
    if sys.platform == "linux":
        ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET)  # may be forbidden: then there is a network


def main() -> None:
    """Run the code; a failure ends in Python's own traceback on stderr."""
    limit(int(sys.argv[1]))
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
