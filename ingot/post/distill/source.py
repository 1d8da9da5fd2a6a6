"""The batches of distillation: the student's own samples, or given conversations, with what the teachers say about them.

In step s the answers are the student's own with probability `on_policy` (λ of GKD, arXiv 2306.13649), else given ones; which it
is follows from (seed, s). A task's kind says which teacher grades it, so a micro-batch has texts of one teacher only.

What a teacher says comes in one of these forms, by the algorithm:

    log p of each sampled token     stamped as an advantage before packing              reverse_kl
    its likeliest tokens            vectors of each sequence, before packing            top_k
    hidden states                   vectors of this process's own batches               gkd
    those of its own tokens         the same, found by the places stamped before        gold
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.model.transformer import Transformer
from ingot.post.algorithm import AcrossAlgorithm, DivergenceAlgorithm, GradedSpan
from ingot.post.data.conversations.sequences import ShuffledPool, pack_groups
from ingot.post.distill.config import DistillConfig
from ingot.post.distill.teacher import Teacher
from ingot.post.distill.teacher_view import PLACES, Dialogue, View, episode_dialogues, make_views, with_groups
from ingot.post.processes import Processes
from ingot.post.rl.checks.ratio import RatioCheck
from ingot.post.rl.engine_sampler import EngineSampler
from ingot.post.rl.pipeline import SampleBatch, SamplePipeline
from ingot.post.rl.stamping import Rows
from ingot.post.rl.token_scores import TokenScores, by_episode, plain_sequences, token_grades
from ingot.tokens.batch import Batch, TokenSequence
from ingot.train.batches import deal
from ingot.train.device import choose_device, choose_precision, precision_context
from ingot.train.losses.divergence import STATES
from ingot.train.losses.gold import REST
from ingot.train.losses.score import run_model
from ingot.train.passes import Passes
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder

Teachers = Mapping[str, Teacher]
Text = tuple[
    TokenSequence, Dialogue | None
]  # what is learnt from, and what it says where a teacher reads that otherwise
Said = TypeVar("Said")


class TaskTeachers:
    """The teachers of a stage; each scores the answers to its own tasks."""

    def __init__(
        self,
        teachers: Teachers,
        config: DistillConfig,
        processes: Processes,
        location: Path,
    ) -> None:
        """`location` is the stage's folder, which errors name."""
        self.teachers, self.config, self.processes, self.location = teachers, config, processes, location
        self.tools = find_tools(config.tools)

    def logprobs(self, episodes: Sequence[Episode], temperature: float) -> Rows:
        """The log-probability of every token by its teacher."""
        return self._by_teacher(episodes, lambda teacher, own: self._logprobs(teacher, own, temperature))

    def grades(self, episodes: Sequence[Episode], temperature: float) -> list[list[GradedSpan]]:
        """The same of every sampled token, or of runs of them where a teacher has another tokenizer."""
        return self._by_teacher(episodes, lambda teacher, own: self._grades(teacher, own, temperature))

    def of(self, task: Task) -> str:
        """The name of the teacher that grades a task."""
        return next(iter(self.teachers)) if len(self.teachers) == 1 else self.config.teacher_of(task.kind)

    def dialogues(self, episode: Episode) -> list[Dialogue]:
        """What each segment of an answer says."""
        return episode_dialogues(episode, self.tools)

    def _by_teacher(
        self, episodes: Sequence[Episode], ask: Callable[[Teacher, Sequence[Episode]], list[Said]]
    ) -> list[Said]:
        """The results of the teachers, each for its own episodes, in the order of the episodes."""
        rows: dict[int, Said] = {}
        for name, teacher in self.teachers.items():
            own = [index for index, each in enumerate(episodes) if self.of(each.task) == name]
            rows |= zip(own, ask(teacher, [episodes[index] for index in own]), strict=True)
        return [rows[index] for index in range(len(episodes))]

    def _logprobs(self, teacher: Teacher, episodes: Sequence[Episode], temperature: float) -> Rows:
        if teacher.respeller is not None:
            raise CheckFailed(
                f"{self.config.algorithm.algorithm} asks for log-probabilities of single tokens, and {teacher.name} has others",
                place=str(self.location),
                fix="let it read samples.graded(), or use a teacher with the student's tokenizer",
            )
        return by_episode(episodes, self._ask(teacher, plain_sequences(episodes), temperature))

    def _grades(self, teacher: Teacher, episodes: Sequence[Episode], temperature: float) -> list[list[GradedSpan]]:
        if teacher.respeller is None:
            rows = zip(episodes, self._logprobs(teacher, episodes, temperature), strict=True)
            return [token_grades(each.sampled(), row) for each, row in rows]
        views: list[list[tuple[int, View]]] = []  # of each episode, with the tokens before its segment
        for each in episodes:
            views.append([])
            start = 0
            for dialogue in self.dialogues(each):
                views[-1] += [(start, view) for view in make_views(dialogue, teacher.respeller) if view.groups]
                start += len(dialogue.tokens)
        sequences = [TokenSequence(view.tokens) for listed in views for _, view in listed]
        rows_of = iter(self._ask(teacher, sequences, temperature))
        return [[one for start, view in listed for one in _grades(start, view, next(rows_of))] for listed in views]

    def _ask(self, teacher: Teacher, sequences: Sequence[TokenSequence], temperature: float) -> Rows:
        return teacher.logprobs(sequences, self.config.sequence_length, temperature, self.processes)


def _grades(start: int, view: View, row: Sequence[float]) -> list[GradedSpan]:
    """The teacher's log-probability of each group's bytes."""
    return [
        GradedSpan(start + each.start, start + each.stop, sum(row[each.other_start : each.other_stop]))
        for each in view.groups
    ]


class StudentSamples:
    """The student's own answers, scored by their teachers: the pipeline of RL (rl/pipeline.py), without rewards' own steps.

    `whole` is what is sampled from: `model` itself, unless several processes divide that.
    """

    def __init__(
        self,
        model: Transformer,
        config: DistillConfig,
        folder: StageFolder,
        processes: Processes,
        whole: Transformer | None,
        teachers: Teachers,
    ) -> None:
        self.config, self.processes = config, processes
        self.teachers = TaskTeachers(teachers, config, processes, folder.path)
        self.scores = TokenScores(model, config, config.algorithm, processes, self.teachers)
        self.sampler = EngineSampler(model, whole, config, folder.seed, processes)
        self.pipeline = SamplePipeline(config, config.algorithm, folder, processes, self.sampler, self.scores)
        self.check_ratio = RatioCheck(model, config.algorithm, folder.path, self.scores.dtype, self.sampler.dtype)
        if processes.layout is None:  # the weights are here; those of a divided model come with the trainer
            self.scores.begin()

    def collect(self, step: int) -> SampleBatch:
        """The answers of a step, with their training sequences."""
        self.sampler.renew(step)
        return self.pipeline.run(SampleBatch(step, self.config.temperature, self.config.max_new_tokens))


class DistillSource(Source):
    """Steps of the student's own answers, of given ones, or of both in turn.

    `given` are conversations with the streams `response_mask` and `sampled_logprob`; if they have the likeliest tokens of the
    teacher already, none is needed for them. `dialogues` are what they say, for an algorithm that compares groups.
    """

    varies = True

    def __init__(
        self,
        config: DistillConfig,
        seed: int,
        processes: Processes,
        teachers: Teachers,
        samples: StudentSamples | None,
        given: Sequence[TokenSequence],
        dialogues: Sequence[Dialogue] = (),
    ) -> None:
        self.config, self.seed, self.processes, self.teachers = config, seed, processes, teachers
        self.samples, self.given, self.dialogues = samples, given, dialogues
        self.across = isinstance(config.algorithm, AcrossAlgorithm)
        self.views: list[View] = []  # of the step, where the algorithm compares groups
        self.pool = ShuffledPool(len(given), seed) if given else None
        self.device = choose_device(config.device)
        self.dtype = choose_precision(config.precision, self.device)

    def begin(self, passes: Passes) -> None:
        if self.samples is not None:
            self.samples.scores.begin(passes)

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        texts, metrics = self._texts(step)
        self.views = []
        named: list[tuple[str, Batch]] = []
        for name, listed in texts.items():
            sizes = self.config.sequence_length, self.config.micro_batch_tokens, world
            named += [(name, batch) for batch in pack_groups([[each] for each in self._known(name, listed)], *sizes)]
        batches = deal([batch for _, batch in named], rank, world)
        names = [name for name, _ in named[rank::world]]
        names += [named[0][0]] * (len(batches) - len(names))  # of the batches that only fill up
        algorithm = self.config.algorithm
        if isinstance(algorithm, DivergenceAlgorithm) and algorithm.likeliest is None:
            add = self._with_states_of_groups if self.across else self._with_states
            batches = [add(*each) for each in zip(names, batches, strict=True)]
        return batches, metrics

    def _texts(self, step: int) -> tuple[dict[str, list[Text]], dict[str, float]]:
        """The texts of a step by teacher, and metrics."""
        texts: dict[str, list[Text]] = {}
        own = self.pool is None or random.Random(f"own/{self.seed}/{step}").random() < self.config.on_policy
        if own:
            assert self.samples is not None
            made = self.samples.collect(step)
            for episode, sequences in zip(made.episodes, made.sequences, strict=True):
                said = self.samples.teachers.dialogues(episode) if self.across else [None] * len(sequences)
                listed = texts.setdefault(self.samples.teachers.of(episode.task), [])
                listed += zip(sequences, said, strict=True)
            return texts, made.metrics | {"own_samples": 1.0}
        assert self.pool is not None
        count = self.config.prompts_per_step * self.config.group
        chosen = [self.pool[step * count + i] for i in range(count)]
        name = next(iter(self.teachers), "")
        return {name: [(self.given[i], self.dialogues[i] if self.across else None) for i in chosen]}, {
            "own_samples": 0.0
        }

    def _known(self, name: str, texts: Sequence[Text]) -> Sequence[TokenSequence]:
        """The texts with what the algorithm needs of the teacher before they are packed, unless it is there already."""
        algorithm, sequences = self.config.algorithm, [sequence for sequence, _ in texts]
        if isinstance(algorithm, AcrossAlgorithm):
            return [self._with_groups(name, *text, last=algorithm.last) for text in texts]
        if not isinstance(algorithm, DivergenceAlgorithm) or algorithm.likeliest is None or sequences[0].vectors:
            return sequences
        sizes = algorithm.likeliest, self.config.sequence_length, self.config.temperature
        return self.teachers[name].with_likeliest(sequences, *sizes, self.processes)

    def _with_groups(self, name: str, sequence: TokenSequence, dialogue: Dialogue | None, last: bool) -> TokenSequence:
        assert dialogue is not None
        views = make_views(dialogue, self.teachers[name].respeller)
        self.views += views
        return with_groups(sequence, views, len(self.views) - len(views) + 1, last)

    @torch.no_grad()
    def _with_states(self, name: str, batch: Batch) -> Batch:
        with precision_context(self.device, self.dtype):
            states = run_model(self.teachers[name].model, batch.to(self.device))
        return replace(batch, vectors={**batch.vectors, f"{STATES}/{name}": states.cpu()})

    def _with_states_of_groups(self, name: str, batch: Batch) -> Batch:
        """The teacher reads the views of this batch's groups; its states and log-probabilities go where the groups are."""
        view, read, first, last = batch.vectors[PLACES].long().unbind(dim=-1)
        numbers = [number for number in view.unique().tolist() if number]
        texts = [self.views[number - 1].tokens for number in numbers]
        with precision_context(self.device, self.dtype):
            sizes = self.config.sequence_length, self.config.temperature
            states, logprobs, starts = self.teachers[name].states(texts, *sizes)
        start_of = torch.zeros(len(self.views) + 1, dtype=torch.int64)
        start_of[numbers] = torch.tensor(starts, dtype=torch.int64)
        there, start = view > 0, start_of[view]
        sums = torch.cat((torch.zeros(1, dtype=torch.float64), logprobs.double().cumsum(0)))
        group = sums[start + last + 1] - sums[start + first]
        rest = torch.where(there & (last > first), group - logprobs[start + read], 0.0).to(logprobs.dtype)
        found = states[torch.where(there, start + read, 0)]  # place 0 is of no token, and holds zeros
        return replace(batch, vectors={**batch.vectors, f"{STATES}/{name}": found, REST: rest})
