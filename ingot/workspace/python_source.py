"""Parses Python, one text at a time.

Up to Python 3.11.7 and 3.12.1 two threads in `ast.parse` share a count of the recursion, and one of them raises SystemError
("AST constructor recursion depth mismatch", github.com/python/cpython/issues/106905). Rewards and tools parse in threads.
"""

from __future__ import annotations

import ast
import threading
from typing import Literal, overload

_one_at_a_time = threading.Lock()


@overload
def parse_python(text: str, mode: Literal["exec"] = "exec", *, name: str = ...) -> ast.Module: ...
@overload
def parse_python(text: str, mode: Literal["eval"], *, name: str = ...) -> ast.Expression: ...
def parse_python(
    text: str, mode: Literal["exec", "eval"] = "exec", *, name: str = "<unknown>"
) -> ast.Module | ast.Expression:
    """As `ast.parse`; errors call the text `name`."""
    with _one_at_a_time:
        return ast.parse(text, name) if mode == "exec" else ast.parse(text, name, mode)
