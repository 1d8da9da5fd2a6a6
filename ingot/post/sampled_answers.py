"""Scored answers of a model to tasks, sampled and saved piece by piece: for pairs, offline filters, rejection sampling.

An answer's seed is a hash of (seed, task, which answer to it, turn): envs/rollout/rollout.py. Its tokens follow from that and the
weights, up to the rounding of matrix products, which depends on what is computed together. So answers are sampled in pieces of
whole tasks, each by an engine with an empty cache: a piece does not depend on the pieces before it. (Only tools can still make a
difference: an answer joins the batch again when its tool has answered.)

An engine that empties after each piece costs time: with PIECE = 32 SLOTS 3 to 14 % more steps than one that is never emptied, for
lengths that are uniform up to the longest, and lengths with a long tail (8 times the mean). A stop loses a piece in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.episode_plain import from_plain, to_plain
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.policies import MessagePolicy, Policy
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.envs.tools.tool import Tool
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.policy import chat_tokenizer
from ingot.post.resumable import Resumable
from ingot.tokens.chat import ChatFormat
from ingot.workspace.config import content_hash

SLOTS = 64  # answers that are sampled at the same time
PIECE = 2048  # answers that are saved together


@dataclass(frozen=True)
class AnswerSampler:
    """Samples an answer to each of `tasks`, in order; a task that is listed k times gets k.

    `make_policy` is called for the first answer: where all are saved, no engine is needed.
    """

    tasks: Sequence[Task]
    make_policy: Callable[[], Policy | MessagePolicy]
    chat: ChatFormat
    environments: Mapping[str, Environment]
    drawing: Drawing
    limits: Limits
    tools: Mapping[str, Tool] = field(default_factory=dict)

    @cached_property
    def policy(self) -> Policy | MessagePolicy:
        """What answers."""
        return self.make_policy()

    def sample(self, run: slice, between: Between) -> list[Episode]:
        """The answers to a run of the tasks; `between` is called between any two steps, and what it raises ends them."""
        if isinstance(self.policy, Engine):
            self.policy.update(None, self.policy.version)  # it forgets the prompts of other pieces
        return rollout(
            self.tasks,
            self.policy,
            self.chat,
            self.environments,
            drawing=self.drawing,
            limits=self.limits,
            tools=self.tools,
            only=run,
            between=between,
        )

    def saved(
        self,
        folder: Path,
        made_from: Mapping[str, Any],
        say: Callable[[str], None],
        *,
        size: int | None = None,
        together: int = 1,
    ) -> Resumable[Episode]:
        """Where the answers are saved. `made_from` names policy and scoring; tasks, drawing, limits and tools are added to it."""
        here = {
            "tasks": [[task.id, task.answer] for task in self.tasks],
            "drawing": asdict(self.drawing),
            "limits": asdict(self.limits),
            "tools": sorted(self.tools),
        }
        return Resumable(
            folder,
            content_hash({**made_from, **here}, digits=24),
            size or PIECE,
            to_plain,
            lambda index, plain: from_plain(plain, self.tasks[index]),
            say,
            together,
        )


def describe_model(model: Transformer) -> dict[str, Any]:
    """The model's shape and the files of its tokenizer, for `made_from`; weights are the caller's."""
    files = {name: sha256(data).hexdigest() for name, data in chat_tokenizer(model).to_files().items()}
    return {"model": model.config.model_dump(mode="json"), "tokenizer": files}
