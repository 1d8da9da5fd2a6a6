"""What an algorithm of post-training is: it stamps numbers on tokens and names the loss terms that read them.

The trainer knows no algorithms. An algorithm is one file in post/algorithms/, or a class in a file of the user's own
(`algorithm: my_algo.py:Cispo`). Of what it stamps, by the stage that names it:

    sft       conversations        `weight` on the assistant's tokens
    prefer    pairs of answers     `chosen`, `rejected`, `weight` on the chosen one, `reference_logprob` if it wants one
              single answers       the same, and `reference_point`
    reward    answers              at their ends: `chosen`, `rejected`, `margin`; or `rated`, `score`
    rl        scored samples       `advantage`, `response_mask`, `sampled_logprob`, `old_logprob`, `reference_logprob`
    distill   samples              the same, with a teacher; or `response_mask` and the teacher's distributions, on any text

Files of algorithms import torch inside their methods: a recipe that names one is read without torch.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field

from ingot.envs.episode import Episode
from ingot.workspace.kinds import Kind, Kinds, Of

if TYPE_CHECKING:
    from torch import Tensor

    from ingot.model.transformer import Transformer
    from ingot.train.losses.divergence import Divergence
    from ingot.train.losses.gold import Shared
    from ingot.train.losses.terms import LossTerm


class Algorithm(Kind):
    """The base of every algorithm."""

    key: ClassVar[str] = "algorithm"
    package: ClassVar[str] = "ingot.post.algorithms"
    algorithm: str = Field("", description="the algorithm: a name, or file.py:Name")

    @abstractmethod
    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        """The terms of the loss (train/losses/terms.py), which read the streams; `config` is the stage's."""


class GradedSpan(NamedTuple):
    """Tokens start to stop of an episode, and the log-probability of what they spell by the teacher."""

    start: int
    stop: int
    logprob: float


@dataclass(frozen=True)
class Samples:
    """What the policy sampled in a step: `group` samples of each task, one task after the other."""

    episodes: Sequence[Episode]
    group: int
    frozen_logprobs: Callable[[], list[list[float]]]
    """The log-probability of every token by the frozen model: the teacher, or the reference if the algorithm wants one."""
    old_logprobs: Callable[[], list[list[float]]]
    """log π_old: by the policy that the updates on these samples begin with; the sampler's, if that is the same."""
    values: Callable[[], list[list[float]]]
    """What the value head expects before every token, if the algorithm has one."""
    limit: int
    """The most tokens of a turn."""
    graded: Callable[[], list[list[GradedSpan]]] = list
    """What the teacher says of every episode: of each sampled token, or of runs of them if its tokenizer is another."""
    coins: str | None = None
    """The seed of the coin flips that stand in for the rewards; None: the rewards of the tasks."""


Stamped = tuple[list[list[float]], dict[str, float]]
"""A number for every token of every episode (on tokens that were not sampled it is ignored), and metrics."""


class SampledAlgorithm(Algorithm):
    """An algorithm that learns from the policy's own samples."""

    rewarded: ClassVar[bool] = True  # it learns from rewards: a task that can never earn one is an error

    @property
    def wants_reference(self) -> bool:
        """Whether a term reads `reference_logprob`: then the input checkpoint is kept in memory beside the policy."""
        return False

    @property
    def replaces_reference(self) -> bool:
        """Whether a later policy takes the reference's place during the run."""
        return False

    @property
    def wants_old(self) -> bool:
        """Whether a term reads `old_logprob`, where a batch of samples has more than one update."""
        return False

    @property
    def heads(self) -> tuple[str, ...]:
        """Further heads on the model that terms read; those that a checkpoint does not have begin at 0."""
        return ()

    def learns_from(self, episode: Episode) -> bool:
        """Whether the loss has this answer in it; nothing is learnt where the environment failed."""
        return not episode.failed

    def streams(self, samples: Samples) -> tuple[dict[str, list[list[float]]], dict[str, float]]:
        """All that is stamped on tokens, stream by stream; by default the advantage."""
        rows, metrics = self.advantages(samples)
        return {"advantage": rows}, metrics

    @abstractmethod
    def advantages(self, samples: Samples) -> Stamped:
        """The advantage of every token. Called in every process with all samples of the step; must give the same in each."""

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        """The clipped policy gradient."""
        from ingot.train.losses.policy_gradient import PolicyGradient

        return [PolicyGradient()]


class RlAlgorithm(SampledAlgorithm):
    """An algorithm of an `rl` stage."""

    dynamic: ClassVar[bool] = False  # dynamic sampling is part of it
    mini_batches: ClassVar[int] = 1  # where the stage does not say: several, where one would not show the method

    @property
    def least_group(self) -> int:
        """How many answers to a task it needs."""
        return 1

    def reward(self, episode: Episode) -> float:
        """What an answer earns: by default what its task's verifier says."""
        return episode.score.reward


class DistillAlgorithm(SampledAlgorithm):
    """An algorithm of a `distill` stage; the frozen model is the teacher."""

    rewarded: ClassVar[bool] = False


class DivergenceAlgorithm(DistillAlgorithm):
    """One that compares whole distributions: it learns from any text, also of other writers, and stamps nothing on tokens."""

    @property
    def likeliest(self) -> int | None:
        """How many of the teacher's likeliest tokens it compares; None: all, from the teacher's hidden states."""
        return None

    @abstractmethod
    def divergence(self, heads: Mapping[str, Callable[[Tensor], Tensor]]) -> Divergence:
        """The loss term; `heads` make logits of the teachers' hidden states (none if `likeliest` is a number)."""

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        return [self.divergence({})]

    def advantages(self, samples: Samples) -> Stamped:
        return [[0.0] * episode.length for episode in samples.episodes], {}


class AcrossAlgorithm(DivergenceAlgorithm):
    """One that compares groups of tokens, so that the teacher's tokenizer may be another than the student's."""

    @property
    @abstractmethod
    def last(self) -> bool:
        """Whose distribution stands for a group: that before its last token, else that before its first."""

    @abstractmethod
    def compare(self, heads: Mapping[str, Callable[[Tensor], Tensor]], shared: Mapping[str, Shared]) -> Divergence:
        """The loss term; `shared` are the tokens that mean the same to the student and to each teacher."""

    def divergence(self, heads: Mapping[str, Callable[[Tensor], Tensor]]) -> Divergence:
        return self.compare(heads, {})


class PairAlgorithm(Algorithm):
    """An algorithm of a `prefer` stage."""

    wants_reference: ClassVar[bool] = (
        True  # a term reads `reference_logprob`: log-probabilities of the input checkpoint
    )
    paired: ClassVar[bool] = True  # it compares two answers to one prompt; otherwise it takes single ones, good or bad


class SftAlgorithm(Algorithm):
    """An algorithm of an `sft` stage."""


class RewardAlgorithm(Algorithm):
    """An algorithm of a `reward` stage."""

    paired: ClassVar[bool] = True  # it compares two answers; false: answers have scores


class Algorithms(Kinds[Of]):
    """The algorithms of one kind of stage, which share a package with those of others."""

    def names(self) -> list[str]:
        """Those that the stage can run."""
        return [name for name in super().names() if self._is_here(name)]

    def _is_here(self, name: str) -> bool:
        module = importlib.import_module(f"{self.base.package}.{name}")
        return any(self._is_kind(one) and one.__module__ == module.__name__ for one in vars(module).values())


RL = Algorithms(RlAlgorithm, "RL algorithm")  # type: ignore[type-abstract]
DISTILL = Algorithms(DistillAlgorithm, "distillation algorithm")  # type: ignore[type-abstract]
PREFER = Algorithms(PairAlgorithm, "preference algorithm")  # type: ignore[type-abstract]
REWARD = Algorithms(RewardAlgorithm, "algorithm of reward models")  # type: ignore[type-abstract]
SFT = Algorithms(SftAlgorithm, "SFT algorithm")  # type: ignore[type-abstract]
