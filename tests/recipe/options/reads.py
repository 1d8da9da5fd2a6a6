"""Which options a running stage looks at: every attribute of a config that anything reads while it works.

Code that takes a config's values without naming them (`model_dump`, `for name, value in config`) reads none of them here.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Union, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from ingot.workspace.config import Config

Reads = set[tuple[type[Config], str]]
Place = tuple[str | int, ...]


@contextmanager
def noted_reads() -> Iterator[Reads]:
    """While this is open, what is read of any config is put into the set."""
    found: Reads = set()

    def read(self: Config, name: str) -> Any:
        if name in type(self).__pydantic_fields__:
            found.add((type(self), name))
        return object.__getattribute__(self, name)

    Config.__getattribute__ = read  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        del Config.__getattribute__


def options_of(config: Config, place: Place = ()) -> Iterator[tuple[Place, Config, str, FieldInfo]]:
    """Every option of a config and of those within it: its keys, whose it is, its name, its declaration."""
    for name, field in type(config).model_fields.items():
        if name == getattr(type(config), "key", ""):
            continue  # names the kind itself
        yield (*place, name), config, name, field
        yield from _inside(config.__dict__[name], (*place, name))


def _inside(value: Any, place: Place) -> Iterator[tuple[Place, Config, str, FieldInfo]]:
    if isinstance(value, Config):
        yield from options_of(value, place)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _inside(each, (*place, key))
    elif isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _inside(each, (*place, number))


def other_values(value: Any, field: FieldInfo) -> Iterator[Any]:
    """Values that the option alone may have, other than the one that it has: small steps away first."""
    metadata = field.metadata or [None]
    allowed: TypeAdapter[Any] = TypeAdapter(cast("Any", typing.Annotated[(field.annotation, *metadata)]))
    for candidate in _candidates(value, field.annotation):
        try:
            read = allowed.validate_python(candidate)
        except ValidationError:
            continue
        if read != value:
            yield candidate


def _candidates(value: Any, annotation: Any) -> Iterator[Any]:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _candidates(value, argument)
    elif origin is typing.Annotated:
        yield from _candidates(value, arguments[0])
    elif origin is Literal:
        yield from arguments
    elif annotation is bool:
        yield from (True, False)
    elif annotation is int:
        yield from ([value + 1, value * 2, value - 1, 1] if isinstance(value, int) else [3, 1, 64])
    elif annotation is float:
        yield from ([value / 2, value + 0.25, value * 2, 1.0] if isinstance(value, (int, float)) else [0.5, 2.0])
    elif annotation is str:
        yield from ("other", "1")
    elif origin in (tuple, list) and arguments:
        yield from ([one] for one in _candidates(None, arguments[0]))
    elif origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        yield from ({key: one} for key in ("other", 1) for one in _candidates(None, arguments[1]))
    elif isinstance(annotation, type) and issubclass(annotation, Config):
        yield {}
