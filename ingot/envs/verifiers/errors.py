"""The error of a verifier that could not decide."""

from __future__ import annotations

from ingot.envs.errors import EnvironmentFailed


class VerifierError(EnvironmentFailed):
    """The verifier itself failed; the answer is neither right nor wrong."""
