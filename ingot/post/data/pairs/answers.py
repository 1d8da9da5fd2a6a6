"""Several answers of a model to each of many tasks, scored, and saved as they are sampled (resumable.py).

An answer's seed is a hash of (seed, task, which answer to it, turn): envs/rollout/rollout.py. Its tokens follow from that and the
weights, up to the rounding of matrix products, which depends on what is computed together. So answers are sampled in pieces of
whole tasks, each by an engine with an empty cache: a piece does not depend on the pieces before it. (Only tools can still make a
difference: an answer joins the batch again when its tool has answered.)

An engine that empties after each piece costs time: with PIECE = 32 SLOTS 3 to 14 % more steps than one that is never emptied, for
lengths that are uniform up to the longest, and lengths with a long tail (8 times the mean). A stop loses a piece in each process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from typing import Any

from ingot.envs.episode import Episode, Node, Score, Segment
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.inference.checksum import weights_checksum
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.policy import chat_format
from ingot.post.prefer_config import PreferConfig
from ingot.post.processes import ALONE, Processes
from ingot.post.resumable import Resumable
from ingot.tokens.chat import Message, ToolCall
from ingot.train.device import choose_sampling_precision
from ingot.workspace.config import content_hash
from ingot.workspace.stage import StageFolder

SLOTS = 64  # answers that are sampled at the same time
PIECE = 2048  # answers that are saved together


def sample_answers(
    model: Transformer,
    config: PreferConfig,
    seed: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[Episode]:
    """`config.samples` scored answers to each of `config.prompts` tasks, in order; those saved in `folder` are not sampled again.

    The model is whole. Each of several processes samples a part of the answers, and all get all.
    """
    mix, chat = TaskMix(config.tasks), chat_format(model)
    # several processes sample from the whole copy that each has; a further one would not fit where that hardly does
    dtype = choose_sampling_precision("auto", model.embedding.weight.device) if processes.size == 1 else None
    tasks = [task for task in mix.generate(seed, config.prompts, "train") for _ in range(config.samples)]

    @cache
    def engine() -> Engine:  # where all answers are there none is needed
        return Engine(model, slots=SLOTS, length=config.sequence_length, dtype=dtype)

    def sample_run(run: slice, between: Between) -> list[Episode]:
        engine().update(None, engine().version)  # it forgets the prompts of other pieces
        return rollout(
            tasks,
            engine(),
            chat,
            mix.kinds,
            drawing=Drawing(config.temperature, seed=seed),
            limits=Limits(config.max_new_tokens, config.sequence_length),
            tools=find_tools(config.tools),
            only=run,
            between=between,
        )

    saved = None
    if folder is not None:
        saved = Resumable(
            folder.path / "answers",
            fingerprint(model, tasks, config, seed),
            PIECE,
            to_row,
            lambda at, row: from_row(tasks[at], row),
            folder.progress.say,
            together=config.samples,
        )
    return processes.share(len(tasks), sample_run, saved)


def fingerprint(model: Transformer, tasks: Sequence[Task], config: PreferConfig, seed: int) -> str:
    """What the answers follow from: weights, tokenizer with its chat template, tasks, how they are scored and sampled, seed."""
    assert model.tokenizer is not None  # its chat format is in use
    return content_hash(
        {
            "model": model.config.model_dump(mode="json"),
            "weights": weights_checksum(model),
            "tokenizer": {name: sha256(data).hexdigest() for name, data in model.tokenizer.to_files().items()},
            "scoring": config.tasks.model_dump(mode="json"),
            "tasks": [[task.id, task.answer] for task in tasks],
            "sampling": [config.temperature, config.max_new_tokens, config.sequence_length, SLOTS, seed],
        },
        digits=24,
    )


def to_row(answer: Episode) -> dict[str, Any]:
    """An answer as JSON, without its task, which is known from its place."""
    return {
        "segments": [[_node_row(node) for node in each.nodes] for each in answer.segments],
        "messages": [asdict(message) for message in answer.messages],
        "score": asdict(answer.score),
        "ended": answer.ended,
    }


def _node_row(node: Node) -> dict[str, Any]:
    """All but what the tokens say, which the answer's own messages have; `asdict` would copy token by token."""
    return {name: value for name, value in vars(node).items() if name != "messages"}


def from_row(task: Task, row: dict[str, Any]) -> Episode:
    """The inverse of `to_row`."""
    calls = [[ToolCall(**call) for call in message["tool_calls"]] for message in row["messages"]]
    messages = [
        Message(**{**message, "tool_calls": made}) for message, made in zip(row["messages"], calls, strict=True)
    ]
    segments = [Segment([Node(**node) for node in nodes]) for nodes in row["segments"]]
    return Episode(task, segments, messages, Score(**row["score"]), row["ended"])
