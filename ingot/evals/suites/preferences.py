"""What a model finds likelier: the worked solution of a held-out task, or a wrong one that differs from it in little.

    margin = (log p(right) - log p(wrong)) / tokens of the right one

over what the assistant writes. Nothing is sampled, so the numbers have little noise: they show what preferences did to a model
before its samples do.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.config import TasksConfig
from ingot.envs.environment import Environment
from ingot.envs.task import Task
from ingot.evals.bases.suite import Measured, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.scores.scores import Metric, metric_of_units
from ingot.evals.suites.tasks import KindCount
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat, Message

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer


class Preferences(Suite):
    """Right and wrong replies to held-out tasks, by their likelihood."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)
    thinks: ClassVar[bool] = False  # the replies are given

    kinds: tuple[KindCount, ...] = Field(
        (KindCount(kind="arithmetic"),), min_length=1, description="the task kinds, and how many tasks of each"
    )
    difficulty: TasksConfig = Field(TasksConfig(), description="how hard each task kind is: as in training, or harder")

    @model_validator(mode="after")
    def _options_are_read(self) -> Self:
        self.difficulty.check_asked([each.kind for each in self.kinds])
        return self

    def measure(self, subject: Subject) -> Measured:
        """How often the right reply is the likelier one, and by how much a token."""
        chat, metrics = ChatFormat(subject.tokenizer), list[Metric]()
        for each in self.kinds:
            kind: Environment = self.difficulty.kind(each.kind)
            tasks = kind.generate(subject.task_seed, min(each.count, subject.limit or each.count), "test")
            margins = measure_margins(subject.model, chat, kind, tasks, subject.max_tokens)
            subject.stop.check()
            label = kind.label or kind.kind
            likelier = {task: float(margin > 0) for task, margin in margins.items()}
            metrics.append(metric_of_units(f"preference/{kind.kind}", likelier, f"Right reply likelier, {label}"))
            metrics.append(
                metric_of_units(f"margin/{kind.kind}", margins, f"Right over wrong reply, nats a token, {label}")
            )
        return Measured(metrics)


def measure_margins(
    model: Transformer, chat: ChatFormat, kind: Environment, tasks: list[Task], capacity: int
) -> dict[str, float]:
    """The margin of every task, by its id."""
    from ingot.post.policy import sequence_logprobs

    rng = random.Random("preferences")
    texts: list[list[int]] = []
    masks: list[list[int]] = []
    for task in tasks:
        for reply in (kind.solution(task), kind.weaker(task, rng)):
            messages: list[Message] = [*task.messages, *reply]
            tokens, mask = chat.conversation(messages, task.schemas or None, task.thinking)
            texts.append(tokens)
            masks.append(mask)
    rows = sequence_logprobs(model, [TokenSequence(tokens) for tokens in texts], capacity)
    sums = [
        sum(value for value, one in zip(row, mask, strict=True) if one) for row, mask in zip(rows, masks, strict=True)
    ]
    pairs = zip(tasks, sums[::2], sums[1::2], masks[::2], strict=True)
    return {task.id: (right - wrong) / sum(mask) for task, right, wrong, mask in pairs}
