"""What the algorithms of RL share: the options of the loss (train/losses/policy_gradient.py) and of the reward, freely mixed.

An algorithm is a set of defaults, those of its paper, and a rule for the advantage: `group_advantages` from the rewards of one
task's answers, `answer_advantages` where the whole batch counts, `advantages` where each token has its own. So an option of one
algorithm works with every other.
"""

from __future__ import annotations

import statistics
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ingot.envs.episode import Episode
from ingot.post.algorithm import RlAlgorithm, Samples, Stamped
from ingot.post.rewards.reward_shaping import (
    LengthRewardConfig,
    OverlongConfig,
    TokenBudgetConfig,
    coin_flips,
    shape,
    truncated,
)
from ingot.workspace.config import Config
from ingot.workspace.errors import CheckFailed

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.off_policy import Correction
    from ingot.train.losses.policy_gradient import Aggregation
    from ingot.train.losses.surrogates import Surrogate
    from ingot.train.losses.terms import LossTerm

Deviation = Literal["sample", "population", "batch"]
"""Of the rewards of a group with n − 1 or n; of all advantages of the batch."""


class ImportanceConfig(Config):
    """The importance weight of the trainer's policy over the sampler's (train/losses/off_policy.py)."""

    level: Literal["token", "product", "mean"] = Field(
        "token",
        description="of a token, or of its sequence: the product of its tokens' ratios, or their geometric mean",
    )
    mode: Literal["truncate", "mask"] = Field("truncate", description="beyond the bounds: the bound, or 0 (IcePop)")
    low: float | None = Field(None, ge=0, description="lower bound; null for none")
    high: float | None = Field(2.0, gt=0, description="upper bound; null for none")
    of: Literal["old", "current"] = Field(
        "old", description="of the policy when the batch's updates began (ρ), or of this update (w)"
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> ImportanceConfig:
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low: {self.low:g} is not below high: {self.high:g}, so that no weight is left as it is")
        return self


class PolicyOptimization(RlAlgorithm):
    """The options that every algorithm has."""

    of_ratio: ClassVar[tuple[str, ...]] = ()  # options that act through the ratio π/π_old alone

    ratio: Literal["token", "product", "mean"] = Field(
        "token",
        description="of a token, or of its sequence: the product of its tokens' ratios, or their geometric mean",
    )
    log_ratio_limit: float = Field(
        20.0, gt=0, description="log ratios, of tokens and of sequences, stay within ± this, so that none is infinite"
    )
    aggregation: Literal["token", "sequence", "group", "constant"] = Field(
        "token", description="the mean is over tokens, answers, tasks, or answers times a constant length"
    )
    aggregation_length: int | None = Field(
        None, gt=0, description="the constant length; null for the stage's max_new_tokens"
    )
    old_policy: Literal["trainer", "sampler"] = Field(
        "trainer", description="whose log-probabilities stand for π_old: the trainer's, computed once a batch, or μ"
    )
    importance: ImportanceConfig | None = Field(None, description="importance weight over the sampler; null for none")
    sequence_mask: float | None = Field(
        None, ge=0, description="drop answers with A < 0 whose mean log(μ/π) is above this (DeepSeek-V3.2); null: none"
    )
    sequence_mask_of: Literal["sampler", "old"] = Field(
        "sampler", description="from which policy that is measured: μ, or π_old in its place, log(π_old/π)"
    )
    reference_weight: float = Field(0.0, ge=0, description="coefficient of the divergence from the reference")
    reference_estimator: Literal["k1", "k2", "k3", "k3_unbiased"] = Field(
        "k3_unbiased", description="its estimate in the loss; in the reward it is k1"
    )
    reference_in: Literal["loss", "reward"] = Field("loss", description="where the divergence stands")
    reference_every: int | None = Field(
        None,
        gt=0,
        description="steps after which the policy becomes the reference (R1: 400); null: the input checkpoint",
    )
    format_reward: float = Field(0.0, ge=0, lt=1, description="reward for a well-formed but wrong answer")
    overlong: OverlongConfig | None = Field(None, description="soft penalty before the limit of length; null for none")
    mask_truncated: bool = Field(False, description="learn nothing from answers that a limit has cut")
    truncated_factor: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="rewards of answers that a limit has cut are multiplied by this (NeMo-RL); null: not",
    )
    length_reward: LengthRewardConfig | None = Field(None, description="shorter answers earn more; null for none")
    token_budget: TokenBudgetConfig | None = Field(None, description="longest answers by kind of task; null for none")

    @property
    def wants_reference(self) -> bool:
        return self.reference_weight > 0

    @property
    def replaces_reference(self) -> bool:
        return self.reference_every is not None

    @property
    def wants_old(self) -> bool:
        return self.old_policy == "trainer"

    @property
    def divides_by_limit(self) -> bool:
        """Whether the constant length of the mean is the stage's limit."""
        return self.aggregation == "constant" and self.aggregation_length is None

    @property
    def by_advantage_alone(self) -> bool:
        """Whether the loss is in proportion to advantages: a token without one has no part in it (skip_zero_advantage.py)."""
        further = self.wants_reference and self.reference_in == "loss"
        return type(self).terms is PolicyOptimization.terms and self.surrogate().proportional and not further

    def learns_from(self, episode: Episode) -> bool:
        return super().learns_from(episode) and not (self.mask_truncated and truncated(episode))

    def reward(self, episode: Episode) -> float:
        """The verifier's reward, or a smaller one for an answer that is only well formed."""
        return max(episode.score.reward, self.format_reward * episode.score.format_ok)

    def rewards(self, samples: Samples) -> list[float | None]:
        """The shaped reward of every answer, without the divergence, or a coin; None where the environment failed."""
        plain = [None if each.failed else self.reward(each) for each in samples.episodes]
        options = self.overlong, self.length_reward, self.token_budget, self.truncated_factor
        shaped = shape(plain, samples.episodes, samples.group, samples.limit, *options)
        return shaped if samples.coins is None else coin_flips(shaped, samples.episodes, samples.coins)

    @property
    def least_group(self) -> int:
        return 2

    def group_advantages(self, rewards: list[float]) -> list[float]:
        """The advantages of a task's answers, by default against their mean; one whose environment failed is not among them."""
        return centred(rewards)

    def answer_advantages(self, rewards: Sequence[float | None], group: int) -> list[float]:
        """The advantages of a batch: of `group` answers to each task, one task after the other; None, a failed answer, has 0."""
        advantages = [0.0] * len(rewards)
        for start in range(0, len(rewards), group):
            known = [(start + at, one) for at, one in enumerate(rewards[start : start + group]) if one is not None]
            found = self.group_advantages([one for _, one in known]) if known else []
            if len(found) != len(known):
                problem = f"group_advantages gave {len(found)} advantages of {len(known)} rewards"
                raise CheckFailed(f"{self.algorithm}: {problem}", fix="give one for each reward, in their order")
            for (index, _), advantage in zip(known, found, strict=True):
                advantages[index] = advantage
        return advantages

    def advantages(self, samples: Samples) -> Stamped:
        rewards = self.rewards(samples)
        metrics = spread_metrics(rewards, samples.group)
        if self.wants_reference and self.reference_in == "reward":
            rows = token_divergences(samples)
            metrics["reference_divergence"] = token_mean(rows, samples)
            totals = [self.reference_weight * sum(row) for row in rows]
            rewards = [None if one is None else one - total for one, total in zip(rewards, totals, strict=True)]
        stamped = self.answer_advantages(rewards, samples.group)
        return [[value] * each.length for value, each in zip(stamped, samples.episodes, strict=True)], metrics

    @abstractmethod
    def surrogate(self) -> Surrogate:
        """What the loss makes of ratio and advantage."""

    def corrections(self) -> tuple[Correction, ...]:
        """The corrections for samples that π_old would not have drawn."""
        from ingot.train.losses.off_policy import Importance, SequenceMask

        made: list[Correction] = []
        if self.importance is not None:
            made.append(Importance(**self.importance.model_dump(), limit=self.log_ratio_limit))
        if self.sequence_mask is not None:
            made.append(SequenceMask(self.sequence_mask, self.sequence_mask_of))
        return tuple(made)

    def mean(self, config: Any) -> Aggregation:
        """What the mean of the loss is over; `config` is the stage's."""
        from ingot.train.losses.policy_gradient import Aggregation

        return Aggregation(self.aggregation, self.aggregation_length or config.max_new_tokens)

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.policy_gradient import PolicyGradient, ReferenceDivergence

        own = "old_logprob" if config.updates_per_batch > 1 else None
        old = "sampled_logprob" if self.old_policy == "sampler" else own
        mean, limit = self.mean(config), self.log_ratio_limit
        parts = self.surrogate(), self.ratio, mean, self.corrections(), old, limit
        terms: list[LossTerm] = [PolicyGradient(*parts)]
        if self.wants_reference and self.reference_in == "loss":
            options = self.reference_weight, self.reference_estimator, self.ratio, mean, old, limit
            terms.append(ReferenceDivergence(*options))
        return terms


class Clipped(PolicyOptimization):
    """With PPO's clip."""

    of_ratio: ClassVar[tuple[str, ...]] = ("clip_low", "clip_high", "dual_clip")

    clip_low: float = Field(0.2, gt=0, description="ratios below 1 − this are clipped")
    clip_high: float = Field(0.2, gt=0, description="ratios above 1 + this are clipped")
    dual_clip: float | None = Field(
        None, gt=1, description="where A < 0, a ratio above this has no more effect (verl: 3; TRL: delta)"
    )

    def surrogate(self) -> Surrogate:
        from ingot.train.losses.surrogates import Clip

        return Clip(self.clip_low, self.clip_high, self.dual_clip)


class GroupRelative(PolicyOptimization):
    """With advantages within the group of answers to a task."""

    divide_by_std: bool = Field(False, description="divide the advantage by the standard deviation")
    std: Deviation = Field(
        "sample",
        description="the deviation of the group's rewards with n − 1 (TRL, verl) or n (open-instruct), or of all advantages of "
        "the batch with n − 1 (Magistral)",
    )
    std_epsilon: float = Field(1e-4, ge=0, description="added to the deviation (verl 1e-6, open-instruct 1e-8)")

    def group_advantages(self, rewards: list[float]) -> list[float]:
        if not self.divide_by_std or self.std == "batch":
            return centred(rewards)
        scale = deviation(rewards, self.std) + self.std_epsilon
        return [one / scale if one else 0.0 for one in centred(rewards)]

    def answer_advantages(self, rewards: Sequence[float | None], group: int) -> list[float]:
        advantages = super().answer_advantages(rewards, group)
        if not self.divide_by_std or self.std != "batch":
            return advantages
        known = [value for value, reward in zip(advantages, rewards, strict=True) if reward is not None]
        scale = deviation(known, "batch") + self.std_epsilon
        return [one / scale if one else 0.0 for one in advantages]


def centred(rewards: Sequence[float]) -> list[float]:
    """The rewards minus their mean.

    The mean is rounded once: where all rewards are equal it is that reward, so that every advantage is exactly 0. What rounding
    would leave of 0.1 − 0.1 is as good as a real advantage to Muon.
    """
    mean = statistics.mean(rewards)
    return [one - mean for one in rewards]


def deviation(values: Sequence[float], std: Deviation) -> float:
    """The standard deviation; 1 of a value that is alone."""
    if len(values) < 2:
        return 1.0
    return statistics.pstdev(values) if std == "population" else statistics.stdev(values)


def spread_metrics(rewards: Sequence[float | None], group: int) -> dict[str, float]:
    """How much rewards differ within groups, and how many groups have any difference; 0 where no reward is known."""
    groups = (rewards[start : start + group] for start in range(0, len(rewards), group))
    known = [[one for one in each if one is not None] for each in groups]
    spread = [statistics.pstdev(each) for each in known if each]
    count = max(1, len(spread))
    return {"reward_std": sum(spread) / count, "mixed_groups": sum(value > 0 for value in spread) / count}


def token_divergences(samples: Samples) -> list[list[float]]:
    """k1 = log π_old − log ref of every sampled token, 0 on the others."""
    return [
        [(old - reference) * one for old, reference, one in zip(*rows, each.sampled(), strict=True)]
        for each, *rows in zip(samples.episodes, samples.old_logprobs(), samples.frozen_logprobs(), strict=True)
    ]


def token_mean(rows: Sequence[Sequence[float]], samples: Samples) -> float:
    """The mean over sampled tokens of what is 0 elsewhere."""
    return sum(map(sum, rows)) / max(1, sum(each.sampled_count for each in samples.episodes))
