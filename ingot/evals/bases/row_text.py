"""Fills the columns of a row into a text, or finds a value in them: Jinja in its sandbox, as task files of lm-eval have it.

"Question: {{question}}\\nAnswer:"   a text
choices.text                         an expression: its value, whatever it is
{{ choices.text }}                   the same
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, TemplateError, meta

from ingot.envs.rows import Row
from ingot.tokens.template import Sandbox
from ingot.workspace.errors import DataError
from ingot.workspace.nearest import suggestion

SANDBOX = Sandbox(undefined=StrictUndefined, keep_trailing_newline=True)
EXPRESSION = re.compile(r"\s*\{\{((?:(?!\}\}).)*)\}\}\s*", re.DOTALL)


class RowText:
    """A text with columns in it (`text`), or an expression over columns; a ValueError if it is neither. `row` is all columns."""

    def __init__(self, source: str, *, text: bool) -> None:
        alone = EXPRESSION.fullmatch(source)
        is_text = text or (alone is None and ("{{" in source or "{%" in source))
        expression = alone[1] if alone else source
        try:
            parsed = SANDBOX.parse(source if is_text else "{{" + expression + "}}")
            self._value = (
                SANDBOX.from_string(source).render
                if is_text
                else SANDBOX.compile_expression(expression, undefined_to_none=False)
            )
        except TemplateError as error:
            raise ValueError(f"{source!r} cannot be read: {error}") from error
        self.columns = sorted(meta.find_undeclared_variables(parsed) - SANDBOX.globals.keys() - {"row"})

    def of(self, row: Row, place: str) -> Any:
        """What it is for a row."""
        for column in self.columns:
            if column not in row:
                raise DataError(f"there is no column {column}", place=place, fix=suggestion(column, row, "columns"))
        try:
            found = self._value({"row": row, **row})
            return str(found) if isinstance(found, StrictUndefined) else found  # str() raises what is undefined
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise DataError(f"the row does not fit: {error}", place=place, fix=f"it has: {', '.join(row)}") from error


@lru_cache(maxsize=256)
def row_text(source: str, *, text: bool) -> RowText:
    """The same, read once for all rows."""
    return RowText(source, text=text)
