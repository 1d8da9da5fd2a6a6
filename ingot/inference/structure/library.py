"""Imports llguidance, which comes with the extra `serve`."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from ingot.workspace.errors import IngotError
from ingot.workspace.packages import install_extra


@cache
def library() -> ModuleType:
    """The module, or an error that says what to install."""
    try:
        import llguidance
    except ImportError as error:
        raise IngotError(
            "structured output needs the library llguidance", place="import", fix=install_extra("serve")
        ) from error
    return llguidance
