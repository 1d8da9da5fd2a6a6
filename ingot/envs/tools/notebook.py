"""Runs the Python code on stdin as a notebook does: the value of a last line that is an expression is printed.

`python.py` runs it in a sandbox as `python -c SOURCE`. Standard library only. Errors go to stdout, in order with the output.
"""

from __future__ import annotations

import ast
import os
import sys
from typing import Any


def main() -> None:
    """Run the code; a failure ends in Python's own traceback."""
    os.dup2(1, 2)
    tree = ast.parse(sys.stdin.read(), "<code>")
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Interactive([tree.body.pop()])
        parts: list[Any] = [compile(tree, "<code>", "exec"), compile(last, "<code>", "single")]
    else:
        parts = [compile(tree, "<code>", "exec")]
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for part in parts:
            exec(part, names)
    finally:
        sys.stdout.flush()  # before a traceback


if __name__ == "__main__":
    main()
