"""Help without types for flags, which take no value (typer writes `--json <bool>`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

Function = TypeVar("Function", bound=Callable[..., Any])


def _hide_types_of_flags(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))


class CommandGroup(TyperGroup):
    """Commands under one name, with the same help."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))


class App(typer.Typer):
    """A typer application made of these."""

    def __init__(self, *, cls: type[TyperGroup] = CommandGroup, **options: Any) -> None:
        super().__init__(cls=cls, **options)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **options: Any
    ) -> Callable[[Function], Function]:
        return super().command(name, cls=cls, **options)
