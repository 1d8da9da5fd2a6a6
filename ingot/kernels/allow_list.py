"""Checks that a kernel understands all options that are set (an allow-list), so that no kernel ignores an option.

A kernel or backend names the fields of an option value that it implements or that do not concern it. `understands` says whether
every other field is at its default. A field that is added later is on no list: as soon as it is set, the kernel is passed
over and the PyTorch definition runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from ingot.workspace.config import Config


def understands(options: Any, known: Collection[str]) -> bool:
    """Whether all fields of `options` (a dataclass or a Config) that are not in `known` have their default values."""
    return not unknown_fields(options, known)


def unknown_fields(options: Any, known: Collection[str]) -> list[str]:
    """The fields that are set and not in `known`; a field without a default is always set."""
    if isinstance(options, Config):
        return [
            name
            for name, field in type(options).model_fields.items()
            if name not in known and (field.is_required() or getattr(options, name) != field.get_default())
        ]
    return [
        field.name
        for field in dataclasses.fields(options)
        if field.name not in known and getattr(options, field.name) is not field.default
    ]
