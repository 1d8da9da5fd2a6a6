"""What is added to a verifier's reward before advantages are computed: penalties of length.

    overlong        0 up to limit − buffer tokens, then falling to −1/2 at the limit (DAPO, arXiv 2503.14476: −1, beside rewards
                    of 1 and −1, which differ by twice as much as ours of 1 and 0)
    truncated       the reward of an answer that a limit has cut, times a factor (NeMo-RL)
    length reward   λ = 1/2 − (n − shortest) / (longest − shortest) within a task's answers; a wrong answer gets min(0, λ)
                    (Kimi k1.5, arXiv 2501.12599); its weight is one for thinking and one for direct answers
    token budget    an answer is cut where the budget of its kind of task ends, and then earns −penalty instead (Kimi K2,
                    arXiv 2507.20534)

As a negative control coins may stand in for all of it (arXiv 2506.10947, where random rewards raised some models' scores):

    coin flips      the batch's highest reward with chance p, else its lowest; p = (mean − lowest) / (highest − lowest), so that
                    the expected mean is the batch's own, and nothing depends on an answer

A task's groups are filtered (dynamic sampling) by rewards without these, so never where coins stand in for them.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Collection, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from ingot.envs.episode import Episode
from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError

FIFTH = 5


class OverlongConfig(Config):
    """A soft penalty before the limit of a turn (`max_new_tokens`)."""

    buffer: int | None = Field(
        None, gt=0, description="tokens before the limit in which the penalty grows; null: a fifth (4,096 of 20,480)"
    )
    factor: float = Field(0.5, gt=0, description="the penalty at the limit: DAPO's, half of what being right earns")

    def penalty(self, episode: Episode, limit: int) -> float:
        """Of the longest turn."""
        buffer = self.buffer or max(1, limit // FIFTH)
        longest = max((len(node.tokens) for node in episode.nodes if node.sampled), default=0)
        return -self.factor * min(1.0, max(0.0, (longest - (limit - buffer)) / buffer))


class LengthRewardConfig(Config):
    """Shorter answers earn more than longer ones to the same task."""

    thinking: float = Field(0.0, ge=0, description="weight for tasks that are answered after thinking")
    direct: float = Field(0.0, ge=0, description="weight for tasks that are answered directly")

    @model_validator(mode="after")
    def _has_a_weight(self) -> LengthRewardConfig:
        if not self.thinking and not self.direct:
            raise ValueError("both weights are 0, which changes no reward: give thinking or direct")
        return self

    def check_modes(self, modes: Collection[bool]) -> None:
        """Fail if a weight is of a mode of thinking in which no task is answered."""
        for weight, thinking, how in ((self.thinking, True, "after thinking"), (self.direct, False, "directly")):
            if weight and thinking not in modes:
                raise RecipeError(
                    f"no task of the stage is answered {how}: the weight would change no reward",
                    place=f"algorithm.length_reward.{'thinking' if thinking else 'direct'}",
                    fix="leave it out, or add such tasks",
                )

    def rewards(self, group: Sequence[Episode]) -> list[float]:
        """Of the answers to one task."""
        lengths = [each.sampled_count for each in group]
        shortest, spread = min(lengths), max(lengths) - min(lengths)
        weight = self.thinking if group[0].task.thinking else self.direct
        graded = [0.5 - (length - shortest) / spread if spread else 0.0 for length in lengths]
        return [
            weight * (value if each.score.correct else min(0.0, value))
            for each, value in zip(group, graded, strict=True)
        ]


class TokenBudgetConfig(Config):
    """What an answer may cost, by kind of task."""

    tokens: dict[str, Annotated[int, Field(gt=0)]] = Field(
        min_length=1, description="the most sampled tokens of an answer, all its turns together, by kind of task"
    )
    penalty: float = Field(1.0, ge=0, description="what an answer that was cut there loses instead of its reward")

    def exceeded(self, episode: Episode) -> bool:
        """Whether the answer had not ended where its budget did."""
        budget, count = self.tokens.get(episode.task.kind), episode.sampled_count
        return budget is not None and (count > budget or (count == budget and truncated(episode)))


def truncated(episode: Episode) -> bool:
    """Whether a limit cut the answer."""
    turns = [node.ended for node in episode.nodes if node.sampled]
    return episode.ended in ("tokens", "turns", "time") or (bool(turns) and turns[-1] == "length")


def shape(
    rewards: Sequence[float | None],
    episodes: Sequence[Episode],
    group: int,
    limit: int,
    overlong: OverlongConfig | None = None,
    length_reward: LengthRewardConfig | None = None,
    budget: TokenBudgetConfig | None = None,
    truncated_factor: float | None = None,
) -> list[float | None]:
    """The rewards with what the options add; None stands for an episode whose environment failed."""
    factor = 1.0 if truncated_factor is None else truncated_factor
    shaped = [
        reward * factor if reward is not None and truncated(each) else reward
        for reward, each in zip(rewards, episodes, strict=True)
    ]
    for start in range(0, len(episodes), group):
        known = [place for place in range(start, start + group) if rewards[place] is not None]
        if length_reward is not None and known:
            extra = length_reward.rewards([episodes[place] for place in known])
            for place, value in zip(known, extra, strict=True):
                shaped[place] = (shaped[place] or 0.0) + value
        for place in known:
            if overlong is not None:
                shaped[place] = (shaped[place] or 0.0) + overlong.penalty(episodes[place], limit)
            if budget is not None and budget.exceeded(episodes[place]):
                shaped[place] = -budget.penalty
    return shaped


def coin_flips(rewards: Sequence[float | None], episodes: Sequence[Episode], seed: str) -> list[float | None]:
    """A coin for every reward, seeded by the run and its step (`seed`), by its task and its place in the batch; None stays."""
    known = [reward for reward in rewards if reward is not None]
    if not known or min(known) == max(known):
        return list(rewards)
    low, high = min(known), max(known)
    chance = (statistics.fmean(known) - low) / (high - low)
    coins = [random.Random(f"spurious/{seed}/{each.task.id}/{place}").random() for place, each in enumerate(episodes)]
    return [
        None if reward is None else high if coin < chance else low for reward, coin in zip(rewards, coins, strict=True)
    ]
