"""Score the tokens of finished answers: by the policy as it is, by a reference, by a teacher.

policy_logprobs    log π_old, in the trainer's precision, by the divided model itself (post/scorer.py)
frozen_logprobs    by the teacher, or by the reference: a copy of the policy at the start, or the model without its adapters
grades             the same of runs of tokens, where a teacher has another tokenizer
values             by the value head
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ingot.envs.episode import Episode
from ingot.model.lora import adapters_off
from ingot.model.transformer import VALUE_HEAD, Transformer
from ingot.post.algorithm import GradedSpan, SampledAlgorithm
from ingot.post.processes import Processes
from ingot.post.rl.sampling_config import SamplingConfig
from ingot.post.rl.stamping import Rows
from ingot.post.scorer import Scorer
from ingot.tokens.batch import TokenSequence
from ingot.train.device import choose_device, choose_precision
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective, Passes
from ingot.train.reference import FrozenModel
from ingot.workspace.errors import CheckFailed


class TeacherScores(Protocol):
    """The teachers of a `distill` stage."""

    def logprobs(self, episodes: Sequence[Episode], temperature: float) -> Rows:
        """The log-probability of every token."""

    def grades(self, episodes: Sequence[Episode], temperature: float) -> list[list[GradedSpan]]:
        """The log-probability of every sampled token, or of runs of them."""


class TokenScores:
    """The policy, and its reference or its teachers. All processes call each method with the same answers."""

    def __init__(
        self,
        model: Transformer,
        config: SamplingConfig,
        algorithm: SampledAlgorithm,
        processes: Processes,
        teachers: TeacherScores | None = None,
    ) -> None:
        self.model, self.algorithm, self.processes, self.teachers = model, algorithm, processes, teachers
        self.length = config.sequence_length
        self.device = choose_device(config.device)
        self.dtype = choose_precision(config.precision, self.device)
        self.scorer: Scorer | None = None
        self.reference: FrozenModel | None = None
        self.frozen: Scorer | None = None

    def begin(self, passes: Passes | None = None) -> None:
        """Let the policy score, and keep the reference; the weights of a divided model come with the trainer's `passes`."""
        if self.scorer is not None:
            return
        own = passes or make_passes(self.model, Objective(()), self.device, self.dtype)
        self.scorer = self._scorer_of(own)
        kept = self.algorithm.wants_reference and not self.is_reference_without_adapters
        if self.teachers is None and kept:
            self.reference = FrozenModel(own)
            self.frozen = self._scorer_of(self.reference.passes)

    def _scorer_of(self, passes: Passes) -> Scorer:
        return Scorer(passes, self.processes, self.length)

    @property
    def is_reference_without_adapters(self) -> bool:
        """With adapters the reference is the model without them, unless a later policy is to take its place."""
        return self.model.lora is not None and not self.algorithm.replaces_reference

    @property
    def policy(self) -> Scorer:
        """The policy as it is."""
        assert self.scorer is not None, "a divided model has its weights from `begin` on"
        return self.scorer

    def policy_logprobs(self, episodes: Sequence[Episode], temperature: float) -> Rows:
        """The log-probability of every token by the policy as it is, in the trainer's precision."""
        return logprobs_by(self.policy, episodes, temperature)

    def frozen_logprobs(self, episodes: Sequence[Episode], temperature: float) -> Rows:
        """The log-probability of every token by the teacher or the reference.

        In the trainer's precision: rounded otherwise, equal models would differ.
        """
        if self.teachers is not None:
            return self.teachers.logprobs(episodes, temperature)
        if self.frozen is not None:
            return logprobs_by(self.frozen, episodes, temperature)
        if not self.algorithm.wants_reference:
            raise CheckFailed(
                f"{self.algorithm.algorithm} asks for the log-probabilities of a reference that it does not want",
                fix="let its property wants_reference be true",
            )
        with adapters_off(self.model):
            return logprobs_by(self.policy, episodes, temperature)

    def grades(self, episodes: Sequence[Episode], temperature: float) -> list[list[GradedSpan]]:
        """The log-probability of every sampled token, or of runs of them, by the teacher."""
        if self.teachers is not None:
            return self.teachers.grades(episodes, temperature)
        rows = zip(episodes, self.frozen_logprobs(episodes, temperature), strict=True)
        return [token_grades(each.sampled(), row) for each, row in rows]

    def values(self, episodes: Sequence[Episode]) -> Rows:
        """The value head's number before every token."""
        return by_episode(episodes, self.policy.values(VALUE_HEAD, plain_sequences(episodes)))

    def columns(self, episodes: Sequence[Episode], temperature: float) -> dict[str, Rows]:
        """Numbers of every token that a record has beside those of sampling and stamping."""
        found = self.policy.logprobs_and_entropies(plain_sequences(episodes), temperature)
        logprobs, entropies = (by_episode(episodes, rows) for rows in found)
        return {"old_logprobs": logprobs, "entropies": entropies}


def logprobs_by(model: Scorer, episodes: Sequence[Episode], temperature: float) -> Rows:
    """The log-probability of every token of every episode."""
    return by_episode(episodes, model.logprobs(plain_sequences(episodes), temperature))


def token_grades(sampled: Sequence[int], row: Sequence[float]) -> list[GradedSpan]:
    """Each sampled token by itself."""
    return [GradedSpan(at, at + 1, row[at]) for at, one in enumerate(sampled) if one]


def plain_sequences(episodes: Sequence[Episode]) -> list[TokenSequence]:
    """Every segment as a sequence without streams."""
    return [TokenSequence(segment.tokens()) for each in episodes for segment in each.segments]


def by_episode(episodes: Sequence[Episode], rows: Rows) -> Rows:
    """Rows of segments as rows of whole episodes."""
    waiting = iter(rows)
    return [[value for _ in each.segments for value in next(waiting)] for each in episodes]
