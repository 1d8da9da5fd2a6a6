"""The offline filter: before the run the start checkpoint answers every task some times, and those it solves too often or too
seldom never come (OLMo 3, arXiv 2512.13961; DAPO, arXiv 2503.14476).

    rows of files      each task by itself
    made-up tasks      some tasks of the kind; a level (difficulty.py) counts as one
    pass_rates.jsonl   what was found, as other stages and `ingot env test` write it (envs/pass_rates.py)

Answers are sampled in pieces that are saved (resumable.py): an interrupted stage goes on after them, with the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.pass_rates import Earned, earned, write_pass_rates
from ingot.envs.rollout.rollout import Drawing
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.inference.checksum import weights_checksum
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.policy import chat_format
from ingot.post.processes import Processes
from ingot.post.resumable import Resumable
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.difficulty import TriedConfig, task_key
from ingot.post.sampled_answers import PIECE, SLOTS, AnswerSampler, describe_model
from ingot.post.samplers.listed import ListedTasks
from ingot.train.device import choose_device, choose_sampling_precision
from ingot.workspace.config import content_hash
from ingot.workspace.errors import DataError
from ingot.workspace.stage import StageFolder

PASS_RATES = "pass_rates.jsonl"


@dataclass(frozen=True)
class Tried:
    """What the start checkpoint solved, (solved, seen) by key, and what is dropped: keys, and kinds without any task left."""

    counts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()


NOTHING = Tried()


def drawn_kinds(kinds: Mapping[str, Environment]) -> frozenset[str]:
    """Those that make their tasks up."""
    return frozenset(name for name, kind in kinds.items() if kind.rows("train") is None)


class AnswerSource(ABC):
    """What answers tasks before the run, with the weights of the start checkpoint."""

    leads: bool = False  # the first process answers all; else each a part

    @abstractmethod
    def follow_from(self) -> dict[str, Any]:
        """What the answers follow from, besides tasks and options."""

    @abstractmethod
    def sample(self, run: slice, between: Between) -> list[Episode]:
        """Scored episodes of a run of all answers, those to one task after each other."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """No more answers are wanted."""


class EngineAnswers(AnswerSource):
    """Answers by an engine in every process, over a whole model."""

    def __init__(self, model: Transformer, config: RlConfig, tasks: ListedTasks, processes: Processes) -> None:
        self.model = model
        self.slots = SLOTS if config.slots is None else -(-config.slots // processes.size)
        self.precision = choose_sampling_precision(config.sampling_precision, choose_device(config.device))
        listed, kinds = tasks.make()
        self.sampler = AnswerSampler(
            [task for task in listed for _ in range(samples_each(config))],
            lambda: Engine(model, slots=self.slots, length=config.sequence_length, dtype=self.precision),
            chat_format(model),
            kinds,
            Drawing(config.temperature, seed=tasks.seed),
            config.limits(config.limit_at(0)),
            find_tools(config.tools),
        )

    def follow_from(self) -> dict[str, Any]:
        about = {"weights": weights_checksum(self.model), "slots": self.slots, "precision": str(self.precision)}
        return about | describe_model(self.model)

    def sample(self, run: slice, between: Between) -> list[Episode]:
        return self.sampler.sample(run, between)


def tried_tasks(config: RlConfig, seed: int) -> ListedTasks | None:
    """All tasks that a trial asks; None without a trial."""
    options = None if config.difficulty is None else config.difficulty.tried
    return None if options is None else ListedTasks(config.tasks, seed, options.drawn, "train", by_kind=True)


def samples_each(config: RlConfig) -> int:
    """Answers to each task of a trial."""
    assert config.difficulty is not None and config.difficulty.tried is not None
    return config.difficulty.tried.samples


def try_tasks(
    answers: AnswerSource, tasks: ListedTasks, config: RlConfig, folder: StageFolder, processes: Processes
) -> Tried:
    """Let the start checkpoint answer the tasks of the stage; all processes get the same."""
    assert config.difficulty is not None and config.difficulty.tried is not None
    (listed, kinds), options = tasks.make(), config.difficulty.tried
    asked = [task for task in listed for _ in range(options.samples)]
    about = answers.follow_from() | {
        "scoring": config.tasks.model_dump(mode="json"),
        "tasks": [[task.id, task.answer] for task in asked],
        "sampling": [config.temperature, config.limit_at(0), config.sequence_length, list(config.stop), folder.seed],
    }
    saved = Resumable[Earned | None](
        folder.path / "tried",
        content_hash(about, digits=24),
        PIECE,
        to_row=lambda each: each,
        from_row=lambda _, row: None if row is None else (row[0], row[1]),
        say=folder.progress.say,
        together=options.samples,
    )

    def sample_run(run: slice, between: Between) -> list[Earned | None]:
        return [earned(each) for each in answers.sample(run, between)]

    answered = processes.share(len(asked), sample_run, saved, leads=answers.leads)
    pairs = list(zip(asked, answered, strict=True))
    processes.once(lambda: write_pass_rates(folder.path / PASS_RATES, pairs))
    found = sort_out(pairs, drawn_kinds(kinds), options)
    kept = len(found.counts) - len(found.dropped & found.counts.keys())
    processes.once(
        lambda: folder.progress.say(
            f"{kept:,} of {len(found.counts):,} tasks or levels have a pass rate of {options.low:g} to {options.high:g}"
        )
    )
    return found


def sort_out(pairs: Sequence[tuple[Task, Earned | None]], drawn: frozenset[str], options: TriedConfig) -> Tried:
    """What each key counts, and which are outside the range. A key of which every environment failed is dropped."""
    counts: dict[str, tuple[float, float]] = {}
    kind_of: dict[str, str] = {}
    for task, each in pairs:
        key = task_key(task, drawn)
        solved, seen = counts.get(key, (0.0, 0.0))
        counts[key] = (solved, seen) if each is None else (solved + each[0], seen + 1)
        kind_of[key] = task.kind
    kept = {key for key, (solved, seen) in counts.items() if seen and options.low <= solved / seen <= options.high}
    if not kept:
        rates = [solved / seen for solved, seen in counts.values() if seen]
        seen_rates = f"from {min(rates):.3f} to {max(rates):.3f}" if rates else "not known: every environment failed"
        raise DataError(
            f"no task has a pass rate of {options.low:g} to {options.high:g}; they are {seen_rates}",
            place="difficulty.tried",
            fix="widen the range, choose tasks of another difficulty, or begin from another checkpoint",
        )
    gone = frozenset(counts) - kept | (frozenset(kind_of.values()) - {kind_of[key] for key in kept})
    return Tried(counts, gone)
