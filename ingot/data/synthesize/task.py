"""A synthesis task: what is asked about which passages, and which answers become documents.

    class Titles(PassageTask):
        "A title for each passage."
        def ask(self, passage, number): return [self.request(passage, f"Write a title for:\\n{passage.text}")]
        def check(self, request, answer): return f"# {answer.strip()}\\n\\n{request.passage.text}"

Built-in tasks are the files of tasks/; one of the user's own is named as `task: titles.py:Titles`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ingot.data.synthesize.sample import SourcePassage, WriterRequest
from ingot.workspace.kinds import Kind, Kinds

Passages = Callable[[], Iterator[SourcePassage]]
"""Begins to read the passages of all documents; a task that needs them twice calls it twice."""


class SynthesisTask(Kind):
    """The base of every task."""

    key: ClassVar[str] = "task"
    package: ClassVar[str] = "ingot.data.synthesize.tasks"
    asks: ClassVar[bool] = True  # whether a model answers; else `check` gets no answer
    verified: ClassVar[str] = "checks"  # how its samples were checked, for their lineage
    task: str = Field("", description="the task: a name, or file.py:Name")
    shortest: int = Field(default=60, ge=1, description="fewest words of a passage")
    longest: int = Field(default=400, ge=1, description="most words of a passage; paragraphs are joined up to here")
    max_samples: int | None = Field(default=None, ge=1, description="stop after this many accepted samples (null: all)")

    @abstractmethod
    def requests(self, passages: Passages) -> Iterator[WriterRequest]:
        """What is asked, in the order of the documents."""

    @abstractmethod
    def check(self, request: WriterRequest, answer: str) -> str:
        """The document that an answer becomes; raises `Refused` with a reason of a few words."""

    def request(self, passage: SourcePassage, prompt: str, variant: int = 0, **facts: Any) -> WriterRequest:
        """A question of this task; `facts` are what `check` needs besides the passage."""
        return WriterRequest(self.short_name, passage, prompt, variant, facts)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"no passage has at least {self.shortest} and at most {self.longest} words")
        return self


class PassageTask(SynthesisTask):
    """What tasks that take passages one by one have in common."""

    share: float = Field(default=1.0, gt=0, le=1, description="share of the passages, chosen by the hash of their ids")
    where: dict[str, str | list[str]] = Field(
        default={}, description="only documents whose column has this value, as in {topic: [science, history]}"
    )

    @abstractmethod
    def ask(self, passage: SourcePassage, number: int) -> list[WriterRequest]:
        """What is asked about a passage, the `number`-th of those that are taken."""

    def requests(self, passages: Passages) -> Iterator[WriterRequest]:
        taken = (passage for passage in passages() if chosen(passage.id, self.share))
        for number, passage in enumerate(taken):
            yield from self.ask(passage, number)


def chosen(id: str, share: float) -> bool:
    """A fair choice that depends on the id only."""
    return int.from_bytes(blake2b(id.encode(), digest_size=8, person=b"synthesize").digest(), "big") < share * 2**64


SYNTHESIS_TASKS = Kinds(SynthesisTask, "synthesis task")  # type: ignore[type-abstract]
