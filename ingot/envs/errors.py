"""The failure of an environment: the episode ends without a reward, because nobody knows what it would have earned."""

from __future__ import annotations

from ingot.workspace.errors import IngotError


class EnvironmentFailed(IngotError):
    """The environment failed, not the policy: a verifier, a tool's service or a sandbox. Raise it in any hook or tool."""
