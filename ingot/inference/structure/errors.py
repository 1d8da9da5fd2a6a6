"""What goes wrong when text is held to a structure: a pattern or schema that cannot be compiled, a token that does not fit."""

from __future__ import annotations

from ingot.workspace.errors import IngotError


class StructureError(IngotError):
    """A structure that cannot be honoured exactly, or a text that leaves it; `place` is the offset or JSON pointer."""
