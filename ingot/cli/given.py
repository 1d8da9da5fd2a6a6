"""Refuses options that another one makes meaningless, where the user wrote them: none is taken and ignored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import typer

from ingot.workspace.errors import IngotError


def was_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_given(context: typer.Context, names: Iterable[str], reason: str, fix: str = "leave it out") -> None:
    """Refuse the first of these parameters that stands on the command line; defaults and the environment's values may."""
    wanted = set(names)
    for parameter in context.command.params:
        if parameter.name in wanted and was_given(context, str(parameter.name)):
            raise IngotError(f"{parameter.opts[0]} does nothing {reason}", place=_typed(context), fix=fix)


def _typed(context: typer.Context) -> str:
    """The command as a person types it, however the program was started."""
    if context.parent is None:
        return "ingot"
    return f"{_typed(cast('typer.Context', context.parent))} {context.info_name}"
