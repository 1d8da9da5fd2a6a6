"""The batches of distillation: the student's own samples, or given conversations, with what the teachers say about them.

In step s the answers are the student's own with probability `on_policy` (λ of GKD, arXiv 2306.13649), else given ones; which it
is follows from (seed, s). A task's kind says which teacher grades it, so a micro-batch has texts of one teacher only.

What a teacher says comes in one of three forms, by the algorithm:

    log p of each sampled token     stamped as an advantage before packing              reverse_kl
    its likeliest tokens            vectors of each sequence, before packing            top_k
    hidden states                   vectors of this process's own batches               gkd
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.model.transformer import Transformer
from ingot.post.algorithm import DivergenceAlgorithm
from ingot.post.conversations import ShuffledPool, pack_groups
from ingot.post.likeliest import with_likeliest
from ingot.post.processes import Processes
from ingot.post.sampling import SampledSource
from ingot.post.sampling_config import DistillConfig
from ingot.tokens.batch import Batch, TokenSequence
from ingot.train.batches import deal
from ingot.train.device import choose_device, choose_precision, precision_context
from ingot.train.divergence import STATES
from ingot.train.logprobs import run_model
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder

Teachers = Mapping[str, Transformer]


class GradedSamples(SampledSource):
    """The student's samples; each is graded by the teacher of its task."""

    def __init__(
        self,
        model: Transformer,
        config: DistillConfig,
        folder: StageFolder,
        processes: Processes,
        whole: Transformer,
        teachers: Teachers,
    ) -> None:
        super().__init__(model, config, folder, processes, whole, next(iter(teachers.values())))
        self.teachers, self.choose = teachers, config.teacher_of

    def frozen_logprobs(self, episodes: Sequence[Episode]) -> list[list[float]]:
        rows: dict[int, list[float]] = {}
        for name, teacher in self.teachers.items():
            own = [place for place, each in enumerate(episodes) if self.teacher_of(each.task) == name]
            rows |= zip(own, self.logprobs_by(teacher, [episodes[place] for place in own]), strict=True)
        return [rows[place] for place in range(len(episodes))]

    def teacher_of(self, task: Task) -> str:
        """The name of the teacher that grades a task."""
        return next(iter(self.teachers)) if len(self.teachers) == 1 else self.choose(task.kind)


class DistillSource(Source):
    """Steps of the student's own answers, of given ones, or of both in turn.

    `given` are conversations with the streams `response_mask` and `sampled_logprob`; if they have the likeliest tokens of the
    teacher already, none is needed for them.
    """

    def __init__(
        self,
        config: DistillConfig,
        seed: int,
        processes: Processes,
        teachers: Teachers,
        samples: GradedSamples | None,
        given: Sequence[TokenSequence],
    ) -> None:
        self.config, self.seed, self.processes, self.teachers = config, seed, processes, teachers
        self.samples, self.given = samples, given
        self.pool = ShuffledPool(len(given), seed) if given else None
        self.device = choose_device(config.device)
        self.dtype = choose_precision(config.precision, self.device)

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        sequences, metrics = self._sequences(step)
        named: list[tuple[str, Batch]] = []
        for name, texts in sequences.items():
            sizes = self.config.sequence_length, self.config.micro_batch_tokens, world
            named += [(name, batch) for batch in pack_groups([[text] for text in self._known(name, texts)], *sizes)]
        batches = deal([batch for _, batch in named], rank, world)
        names = [name for name, _ in named[rank::world]]
        names += [named[0][0]] * (len(batches) - len(names))  # of the batches that only fill up
        algorithm = self.config.algorithm
        if isinstance(algorithm, DivergenceAlgorithm) and algorithm.likeliest is None:
            batches = [self._with_states(*each) for each in zip(names, batches, strict=True)]
        return batches, metrics

    def _sequences(self, step: int) -> tuple[dict[str, list[TokenSequence]], dict[str, float]]:
        """The texts of a step by teacher, and metrics."""
        texts: dict[str, list[TokenSequence]] = {}
        own = self.pool is None or random.Random(f"own/{self.seed}/{step}").random() < self.config.on_policy
        if own:
            assert self.samples is not None
            sampled, metrics = self.samples.sequences(step)
            for task, sequence in sampled:
                texts.setdefault(self.samples.teacher_of(task), []).append(sequence)
            return texts, metrics | {"own_samples": 1.0}
        assert self.pool is not None
        count = self.config.prompts_per_step * self.config.group
        name = next(iter(self.teachers), "")
        return {name: [self.given[self.pool[step * count + i]] for i in range(count)]}, {"own_samples": 0.0}

    def _known(self, name: str, texts: Sequence[TokenSequence]) -> Sequence[TokenSequence]:
        """The texts with the teacher's likeliest tokens, if the algorithm wants those and they are not there yet."""
        algorithm = self.config.algorithm
        if not isinstance(algorithm, DivergenceAlgorithm) or algorithm.likeliest is None or texts[0].vectors:
            return texts
        sizes = algorithm.likeliest, self.config.sequence_length, self.config.temperature
        return with_likeliest(self.teachers[name], texts, *sizes, self.processes)

    @torch.no_grad()
    def _with_states(self, name: str, batch: Batch) -> Batch:
        with precision_context(self.device, self.dtype):
            states = run_model(self.teachers[name], batch.to(self.device))
        return replace(batch, vectors={**batch.vectors, f"{STATES}/{name}": states.cpu()})
