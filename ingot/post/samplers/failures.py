"""Failed answers: the environment of their episode failed, so they say nothing about the policy, and are sampled again.

An episode whose time was over before the policy's first turn had ended is one of them: there is no token to learn from. In an
evaluation it is a wrong answer instead (envs/rollout/episode_run.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.envs.episode import Episode, Score

UNWRITTEN = Score(
    0.0, False, False, error="its time (episode_seconds) was over before its first turn had ended", failed="time"
)


def unwritten_as_failed(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes; those without a turn whose time was over have failed."""
    return [replace(each, ended="error", score=UNWRITTEN) if _is_unwritten(each) else each for each in episodes]


def failed_places(episodes: Sequence[Episode]) -> list[int]:
    """Where the failed ones stand."""
    return [place for place, each in enumerate(episodes) if each.failed]


def _is_unwritten(episode: Episode) -> bool:
    return episode.ended == "time" and not episode.sampled_count and not episode.failed
