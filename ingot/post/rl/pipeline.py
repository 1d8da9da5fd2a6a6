"""Turn the tasks of a step into training sequences, from a question to the tokens that are learnt from: RL on one page.

    draw              answers to each task: those whose environment failed are sampled again, a reward model grades them, groups
                      whose answers all earn the same are replaced           engine_sampler.py, async_sampler.py
    describe          averages of all that was drawn                         trajectories.py
    note_tasks        which tasks are solved, and how often (rl)             curriculum/task_choice.py
    second_score      another score of the same policy (rl)                  checks/watch.py
    check_prompts     a prompt must leave room, and an answer must be able to earn something
    add_advantages    the algorithm stamps a number on every sampled token   algorithms/, objective.py, token_scores.py
    measure_start     the divergence from the input checkpoint (rl)          checks/divergence_from_start.py
    record            some groups go to trajectories.jsonl                   trajectories.py
    stamp             one training sequence for each segment                 stamping.py

A step is a function on a `SampleBatch` that adds to it. `rl` and `distill` run the same list; only `rl` has the steps marked so.
What follows is per update: source.py takes a mini-batch of the sequences, skip_zero_advantage.py leaves out what teaches nothing.

Tokens are never decoded and encoded again. In the first update on a batch the policy π is the sampler μ, so their ratio is 1 for
every token; checks/ratio.py stops a run where it is not. All processes run every step with the same batch (processes.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import torch

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.post.algorithm import SampledAlgorithm, Samples
from ingot.post.policy import chat_tokenizer
from ingot.post.processes import Processes
from ingot.post.rl.checks.staleness import present_tokens
from ingot.post.rl.sampling_config import SamplingConfig
from ingot.post.rl.stamping import Rows, training_sequences
from ingot.post.rl.token_scores import TokenScores
from ingot.post.rl.trajectories import RECORDED, Trajectories, choose_groups, describe
from ingot.tokens.batch import TokenSequence
from ingot.tokens.syntax import Syntax
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder


@dataclass
class SampleBatch:
    """The answers of one step and all that is known of them; each step of the pipeline adds to it."""

    step: int
    temperature: float
    limit: int  # tokens of a turn, at most
    coins: str | None = None  # seed of the coin flips that stand in for the rewards; None: the rewards of the tasks
    drawn: Sequence[Episode] = ()  # all answers
    episodes: Sequence[Episode] = ()  # those that are trained on: `group` to each task, one task after the other
    began: Sequence[int] | None = None  # the version with which each of these began, if not that of the step
    streams: dict[str, Rows] = field(default_factory=dict)  # a number for every token of every episode
    sequences: Sequence[Sequence[TokenSequence]] = ()  # the training sequences of each episode
    metrics: dict[str, float] = field(default_factory=dict)


Step = Callable[[SampleBatch], None]


class BatchSampler(ABC):
    """Answers the tasks of a batch with the policy's weights."""

    exact: bool = True  # all answers come from the weights of their step
    dtype: torch.dtype  # in which it samples

    @abstractmethod
    def renew(self, step: int, *, begins: bool = True) -> None:
        """Take the weights of `step`; `begins`: the first update on a batch, which is drawn next."""

    @abstractmethod
    def draw(self, batch: SampleBatch) -> None:
        """Fill in `drawn` and `episodes`, with the metrics of sampling."""

    @abstractmethod
    def answer(self, tasks: Sequence[Task], kinds: Mapping[str, Environment], batch: SampleBatch) -> list[Episode]:
        """One answer to each of these tasks, from which nothing is learnt."""

    def commit(self) -> None:  # noqa: B027 - most have nothing to give back
        """Forget the answers that were drawn last: their batch is complete."""

    def state(self, step: int) -> dict[str, Any]:
        """What a checkpoint at this step needs to go on, as plain JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most have nothing to restore
        """Go on from `state`."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """End what it runs."""


class SamplePipeline:
    """The list of steps."""

    def __init__(
        self,
        config: SamplingConfig,
        algorithm: SampledAlgorithm,
        folder: StageFolder,
        processes: Processes,
        sampler: BatchSampler,
        scores: TokenScores,
        *,
        observers: Sequence[Step] = (),
        measures: Sequence[Step] = (),
    ) -> None:
        """`observers` see all that was drawn; `measures` see the advantages, where a batch is recorded."""
        self.config, self.algorithm, self.folder, self.processes = config, algorithm, folder, processes
        self.sampler, self.scores, self.measures = sampler, scores, measures
        self.tokenizer = chat_tokenizer(scores.model)
        self.trajectories = Trajectories(folder.path / "trajectories.jsonl", self.tokenizer)
        self.steps: list[Step] = [sampler.draw, _describe, *observers, self.check_prompts]
        self.steps += [self.add_advantages, self.record, self.stamp]

    def run(self, batch: SampleBatch) -> SampleBatch:
        """Make the training sequences of a batch."""
        for step in self.steps:
            step(batch)
        return batch

    def check_prompts(self, batch: SampleBatch) -> None:
        """Fail where no answer could be written, or none could earn a reward."""
        check_room(batch.episodes, self.config.sequence_length)
        if self.algorithm.rewarded:
            self._check_thinking(batch.episodes)

    def add_advantages(self, batch: SampleBatch) -> None:
        """Stamp what the algorithm makes of the answers on their tokens, and what its loss reads beside that."""
        episodes, temperature, scores = batch.episodes, batch.temperature, self.scores
        several = self.config.updates_per_batch > 1
        old = scores.policy_logprobs(episodes, temperature) if several and self.algorithm.wants_old else None
        frozen = cache(lambda: scores.frozen_logprobs(episodes, temperature))  # one pass for all that need them
        samples = Samples(
            episodes,
            self.config.group,
            frozen_logprobs=frozen,
            old_logprobs=lambda: old or self._present_logprobs(batch),
            values=lambda: scores.values(episodes),
            limit=batch.limit,
            graded=lambda: scores.grades(episodes, temperature),
            coins=batch.coins,
        )
        streams, metrics = self.algorithm.streams(samples)
        if old is not None:
            streams["old_logprob"] = old
        if self.reads_reference:
            streams["reference_logprob"] = frozen()
        if batch.began is not None:
            began = zip(episodes, batch.began, strict=True)
            streams["present"] = [present_tokens(each, first, batch.step) for each, first in began]
        batch.streams = streams
        batch.metrics |= metrics | ({} if batch.coins is None else {"spurious": 1.0})

    def record(self, batch: SampleBatch) -> None:
        """Measure the answers of every `record_every` steps, and keep some groups of them."""
        if -batch.step % self.config.record_every >= self.config.updates_per_batch:
            return
        for measure in self.measures:
            measure(batch)
        size, episodes = self.config.group, batch.episodes
        wanted = self.config.record_groups or max(1, RECORDED // size)
        groups = choose_groups(self.folder.seed, batch.step, len(episodes) // size, wanted)
        indices = [group * size + index for group in groups for index in range(size)]
        kept = [episodes[index] for index in indices]
        columns = self.scores.columns(kept, batch.temperature)
        advantages = [batch.streams["advantage"][index] for index in indices]
        self.processes.once(lambda: self.trajectories.record(batch.step, kept, advantages, groups, columns))

    def stamp(self, batch: SampleBatch) -> None:
        """Make the training sequences, with all streams on sampled tokens."""
        batch.sequences = training_sequences(batch.episodes, batch.streams, self.config.group, self.algorithm)

    @cached_property
    def reads_reference(self) -> bool:
        """Whether a term of the loss reads `reference_logprob`; what stands in the reward is no stream."""
        if not self.algorithm.wants_reference:
            return False
        return any("reference_logprob" in term.needs for term in self.algorithm.terms(self.scores.model, self.config))

    def _present_logprobs(self, batch: SampleBatch) -> Rows:
        """log π_old where a batch has one update: the sampler's own if it has the same weights and neither rounds."""
        if self.sampler.exact and self.scores.dtype == self.sampler.dtype == torch.float32:
            return [each.logprobs() for each in batch.episodes]
        return self.scores.policy_logprobs(batch.episodes, batch.temperature)

    def _check_thinking(self, episodes: Sequence[Episode]) -> None:
        asking = next((each.task for each in episodes if each.task.thinking), None)
        if asking is not None and not Syntax.of(self.tokenizer.chat_template or "", self.tokenizer.special).thinks:
            raise CheckFailed(
                "the task asks for thinking, but the model's chat template has no traces: every answer would earn 0",
                place=asking.id,
                fix="choose tasks without it (no_think, or calculator with thinking: false), or a template that has them: "
                "`ingot model template`",
            )


def _describe(batch: SampleBatch) -> None:
    batch.metrics |= describe(batch.drawn)


def groups_of(episodes: Sequence[Episode], size: int) -> list[Sequence[Episode]]:
    """The answers to each task."""
    return [episodes[start : start + size] for start in range(0, len(episodes), size)]


def check_room(episodes: Sequence[Episode], length: int) -> None:
    """Fail if a prompt leaves no room for an answer. An episode whose environment failed may have none for another reason."""
    for each in episodes:
        if not each.failed and not each.sampled_count and each.length >= length:
            raise CheckFailed(
                f"the prompt has {each.length} tokens and leaves no room for an answer in a row of {length}",
                place=each.task.id,
                fix="raise the stage's sequence_length, or leave such tasks out",
            )
