"""The offline filter: before the run the start checkpoint answers every task some times, and those it solves too often or too
seldom never come (OLMo 3, arXiv 2512.13961; DAPO, arXiv 2503.14476).

    rows of files      each task by itself
    made-up tasks      some tasks of the kind; a level (difficulty.py) counts as one
    pass_rates.jsonl   what was found, as other stages and `ingot env test` write it (envs/pass_rates.py)

Answers are sampled in pieces that are saved (resumable.py): an interrupted stage goes on after them, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

import torch

from ingot.envs.environment import Environment
from ingot.envs.mix import TaskMix
from ingot.envs.pass_rates import Earned, earned, write_pass_rates
from ingot.envs.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.inference.checksum import weights_checksum
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.curriculum.difficulty import TriedConfig, task_key
from ingot.post.policy import chat_format
from ingot.post.processes import Processes
from ingot.post.resumable import Resumable
from ingot.post.sampling_config import RlConfig
from ingot.train.device import choose_device, choose_sampling_precision
from ingot.workspace.config import content_hash
from ingot.workspace.errors import DataError
from ingot.workspace.stage import StageFolder

SLOTS = 64  # answers that are sampled at the same time by a process, if an option does not say it
PIECE = 2048  # answers that are saved together
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


def try_tasks(model: Transformer, config: RlConfig, folder: StageFolder, processes: Processes) -> Tried:
    """Let the model, which is whole, answer the tasks of the stage; all processes get the same."""
    options = None if config.difficulty is None else config.difficulty.tried
    if options is None:
        return NOTHING
    mix = TaskMix(config.tasks)
    tasks = [task for kind in mix.kinds.values() for task in _tasks(kind, options, folder.seed)]
    answered = _answers(model, config, mix, [task for task in tasks for _ in range(options.samples)], folder, processes)
    pairs = list(zip((task for task in tasks for _ in range(options.samples)), answered, strict=True))
    processes.once(lambda: write_pass_rates(folder.path / PASS_RATES, pairs))
    found = sort_out(pairs, drawn_kinds(mix.kinds), options)
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


def _tasks(kind: Environment, options: TriedConfig, seed: int) -> Sequence[Task]:
    rows = kind.rows("train")
    return kind.generate(seed, options.drawn, "train") if rows is None else rows


def _answers(
    model: Transformer,
    config: RlConfig,
    mix: TaskMix,
    tasks: Sequence[Task],
    folder: StageFolder,
    processes: Processes,
) -> list[Earned | None]:
    """What an answer to each of the tasks earns."""
    chat = chat_format(model)

    slots, dtype = _slots(config, processes), _precision(config)

    @cache
    def engine() -> Engine:  # where all answers are there none is needed
        return Engine(model, slots=slots, length=config.sequence_length, dtype=dtype)

    def sample_run(run: slice, between: Between) -> list[Earned | None]:
        engine().update(None, engine().version)  # it forgets the prompts of other pieces
        episodes = rollout(
            tasks,
            engine(),
            chat,
            mix.kinds,
            drawing=Drawing(config.temperature, seed=folder.seed),
            limits=config.limits(config.limit_at(0)),
            tools=find_tools(config.tools),
            only=run,
            between=between,
        )
        return [earned(each) for each in episodes]

    saved = Resumable[Earned | None](
        folder.path / "tried",
        _fingerprint(model, tasks, config, folder.seed, slots),
        PIECE,
        to_row=lambda each: each,
        from_row=lambda _, row: None if row is None else (row[0], row[1]),
        say=folder.progress.say,
        together=_samples(config),
    )
    return processes.share(len(tasks), sample_run, saved)


def _samples(config: RlConfig) -> int:
    assert config.difficulty is not None and config.difficulty.tried is not None
    return config.difficulty.tried.samples


def _slots(config: RlConfig, processes: Processes) -> int:
    """Answers that each process samples at the same time."""
    return SLOTS if config.slots is None else -(-config.slots // processes.size)


def _precision(config: RlConfig) -> torch.dtype:
    """Of the weights that are sampled with: the stage's own."""
    return choose_sampling_precision(config.sampling_precision, choose_device(config.device))


def _fingerprint(model: Transformer, tasks: Sequence[Task], config: RlConfig, seed: int, slots: int) -> str:
    """What the answers follow from."""
    assert model.tokenizer is not None  # its chat format is in use
    about: dict[str, Any] = {
        "model": model.config.model_dump(mode="json"),
        "weights": weights_checksum(model),
        "tokenizer": {name: sha256(data).hexdigest() for name, data in model.tokenizer.to_files().items()},
        "scoring": config.tasks.model_dump(mode="json"),
        "tasks": [[task.id, task.answer] for task in tasks],
        "sampling": [config.temperature, config.limit_at(0), config.sequence_length, list(config.stop), slots, seed],
        "precision": str(_precision(config)),
    }
    return content_hash(about, digits=24)
