"""Reads the names of the user's own functions in a recipe: `file.py:function`, checked as kinds are (kinds.py).

    backend: Annotated[str, FunctionName("attention backend", "attend(query, key, value, mask, options)")]

The text stays a text, with the file's absolute path; `load_outside` gives the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from ingot.workspace.errors import RecipeError
from ingot.workspace.kinds import wrong_kind
from ingot.workspace.nearest import suggestion
from ingot.workspace.outside import anchor, is_outside, load_outside


class FunctionName:
    """The annotation of a text that names a function: the user's own, or one of the `builtin` names.

    `head` is how such a function begins: its name and its arguments.
    """

    def __init__(self, what: str, head: str, builtin: Sequence[str] = ()) -> None:
        self.what, self.head, self.builtin = what, head, tuple(builtin)

    def read(self, name: str) -> str:
        """The name by which the function is found from whatever folder; an error of pydantic's if there is none."""
        try:
            if name in self.builtin:
                return name
            self.find(name)
        except RecipeError as error:
            raise wrong_kind(error, "") from error
        return anchor(name, Path())

    def find(self, name: str) -> Callable[..., Any]:
        """The function of the user's; a RecipeError says what is wrong and what is near."""
        if not is_outside(name):
            write = f"write file.py:function, where the file has def {self.head}"
            fix = suggestion(name, self.builtin, f"{write}, or one of") if self.builtin else write
            raise RecipeError(f"there is no {self.what} {name}", fix=fix)
        found = load_outside(name)
        if not callable(found) or isinstance(found, type):
            raise RecipeError(f"{name} is not a function, which a {self.what} is", fix=f"write def {self.head}")
        self._check_arguments(name, found)
        function: Callable[..., Any] = found
        return function

    def _check_arguments(self, name: str, function: Callable[..., Any]) -> None:
        arguments = self.head.partition("(")[2].rstrip(")").split(", ")
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError as error:
            given = ", ".join(arguments)
            raise RecipeError(
                f"{name} cannot be called with ({given}): {error}", fix=f"write def {self.head}"
            ) from error
        except ValueError:  # a function that is not written in Python says nothing of its arguments
            return

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """A text, then looked up."""
        return core_schema.no_info_after_validator_function(self.read, handler(source))
