"""The error of a verifier that could not decide."""

from __future__ import annotations

from ingot.workspace.errors import IngotError


class VerifierError(IngotError):
    """The verifier itself failed; the answer is neither right nor wrong."""
