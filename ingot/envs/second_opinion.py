"""A second verifier for finished episodes: what another environment says of the same answers.

It did not make the tasks, so it reads what they carry: `task.answer`, `task.data`, the messages. Answers are judged beside each
other, each within a deadline (rollout/background.py). One that could not be judged has no opinion, which is something else than
0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode, Score
from ingot.envs.rollout.background import BackgroundWork, call
from ingot.envs.rollout.episode_run import Limits

WAIT_SECONDS = 0.05  # between two calls of `between`


def second_opinions(
    verifier: Environment,
    episodes: Sequence[Episode],
    between: Callable[[], None] = lambda: None,
    seconds: float = Limits.judge_seconds,
) -> list[float | None]:
    """The reward that `verifier` gives for each episode; None where it failed, or the episode's own environment did."""
    found: list[float | None] = [None] * len(episodes)
    waiting = {place for place, each in enumerate(episodes) if not each.failed}
    with BackgroundWork[int]() as beside:
        for place in sorted(waiting):
            work = partial(call, verifier.score, episodes[place].task, episodes[place].messages)
            beside.begin(place, work, seconds, f"the verifier {verifier.kind}")
        while waiting:
            between()
            for place, score, _ in beside.ended(WAIT_SECONDS):
                waiting.discard(place)
                found[place] = score.reward if isinstance(score, Score) and score.error is None else None
    return found
