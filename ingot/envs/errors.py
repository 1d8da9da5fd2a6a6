"""The failure of an environment: the episode ends without a reward, because nobody knows what it would have earned."""

from __future__ import annotations

from typing import Literal

from ingot.workspace.errors import IngotError

FailedPart = Literal["environment", "verifier", "sandbox", "server", "tool", "time"]
"""What failed: a hook, a verifier, a sandbox that did not start or died, a server that gave no answer, a tool, the clock."""


class EnvironmentFailed(IngotError):
    """The environment failed, not the policy: a verifier, a tool's service or a sandbox. Raise it in any hook or tool.

    `part` says what failed; without it, it is what the episode was at (rollout/episode_run.py).
    """

    def __init__(
        self, problem: str, *, place: str | None = None, fix: str | None = None, part: FailedPart | None = None
    ) -> None:
        super().__init__(problem, place=place, fix=fix)
        self.part = part
