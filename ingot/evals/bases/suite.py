"""What an eval suite is: options, and a measurement of a model.

A suite is one file in evals/suites/, a class in a file of the user's own (`suite: my_suite.py:Mine`), or data alone (`suite:
my_suite.yaml`, data_suite.py). Its method `measure` is
a generator: it yields what it asks of the model (request.py) and is sent the answers, as often as it likes, and returns what it
found. The requests of all suites are answered together (answer.py), so a suite should ask all that it can at once.

    def measure(self, subject):
        rows = subject.some(self.rows(subject))
        answers = yield [Generation(Question(row["question"]), stop=("\\n",)) for row in rows]
        right = {row["id"]: float(row["answer"] in answer.text) for row, answer in zip(rows, answers)}
        return Measured([metric_of_units("mine/accuracy", right, "Accuracy, mine")])

Answers that take time to grade are asked for with `Worked` (request.py): each is graded in a thread as it comes.
A suite that works on the weights themselves (`subject.model`) needs no requests: its `measure` just returns. A suite whose
questions are always conversations says `forms = ("chat",)`; one that asks no questions says `forms = ()` and `thinks = False`. A
file of a suite imports torch inside its functions, because a recipe that names the suite is read without torch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import Field

from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Answers, Requests
from ingot.evals.scores.scores import Metric, Sample
from ingot.workspace.config import Config
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.kinds import Kind

if TYPE_CHECKING:
    import torch

    from ingot.inference.engine import Engine
    from ingot.model.transformer import Transformer
    from ingot.tokens.tokenizer import Tokenizer
    from ingot.workspace.interrupt import StopSignal

Item = TypeVar("Item")


@dataclass(frozen=True)
class Local:
    """Weights in this process: for suites that look into them."""

    model: Transformer
    engine: Engine


@dataclass(frozen=True)
class Subject:
    """The model that is measured, and how."""

    name: str  # for messages
    form: Form  # how questions reach it: plain text, or a conversation
    stop: StopSignal  # a suite with long work of its own calls `stop.check()` between two steps
    local: Local | None = None  # None: it is behind a server
    given_tokenizer: Tokenizer | None = None
    shards: Path | None = None  # token shards with held-out text
    data: Path | None = None  # a folder of data sets, each in a folder of its own
    limit: int | None = None  # questions of each suite at most
    thinking: bool | None = None  # whether a chat model may think first; None: it may, unless a task says otherwise
    seed: int = 0  # of sampling: the stage's
    task_seed: int = 0  # of questions and texts: the same for all stages, so that checkpoints are compared on the same
    max_tokens: int = 2048  # of a prompt with its answer

    @property
    def model(self) -> Transformer:
        """The weights, for a suite that looks into them."""
        from ingot.inference.divided.leader import LeadingModel

        if isinstance(self._local().model, LeadingModel):
            raise RecipeError(
                "this suite looks into the weights, and the model is divided over devices",
                place=self.name,
                fix="leave the suite out, or set tensor to 1",
            )
        return self._local().model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.model.embedding.weight.device

    @property
    def engine(self) -> Engine:
        """The engine over these weights."""
        return self._local().engine

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, for a suite that counts tokens."""
        if self.given_tokenizer is None:
            raise ArtifactError(
                "the tokenizer of a model behind a server is not known here",
                place=self.name,
                fix="give --tokenizer FOLDER",
            )
        return self.given_tokenizer

    def some(self, rows: Sequence[Item]) -> Sequence[Item]:
        """The first `limit` of the rows."""
        return rows if self.limit is None else rows[: self.limit]

    def held_out(self) -> Path:
        """The token shards, for a suite that cannot do without."""
        if self.shards is None:
            fix = "write inputs: {shards: PATH} or --input shards=PATH, or leave out suites on held-out text"
            raise ArtifactError("bits_per_byte and needle read held-out text, and eval has no shards", fix=fix)
        return self.shards

    def _local(self) -> Local:
        if self.local is None:
            raise RecipeError(
                "this suite looks into the weights, and the model is behind a server",
                place=self.name,
                fix="leave the suite out, or give a checkpoint",
            )
        return self.local


@dataclass(frozen=True)
class Measured:
    """What a suite found: numbers, and rows of samples.jsonl (scores.py)."""

    metrics: Sequence[Metric] = ()
    samples: Sequence[Sample] = ()


Measuring = Generator[Requests, Answers, Measured]


class Suite(Kind):
    """The base of every suite."""

    key: ClassVar[str] = "suite"
    package: ClassVar[str] = "ingot.evals.suites"
    forms: ClassVar[tuple[Form, ...]] = "text", "chat"  # in which its questions can be put; none: it asks no questions
    thinks: ClassVar[bool] = True  # whether it is another measurement when the model thinks first
    does: ClassVar[str] = ""  # one line for `ingot eval list`; by default the first of the docstring
    suite: str = Field("", description="the suite: a name, file.py:Name, or file.yaml")
    name: str = Field(
        "",
        pattern="^[a-z0-9_]*$",
        description="put before the metrics' names (sampled: sampled/accuracy/all), where a suite is measured in several ways",
    )
    held_out: bool = Field(
        True, description="false: a suite that decisions are made by; its scores do not prove what was decided"
    )

    @property
    def can_think(self) -> bool:
        """`thinks`, where it depends on the options."""
        return self.thinks

    @abstractmethod
    def measure(self, subject: Subject) -> Measuring | Measured:
        """Measure the model."""


def check_top_p(options: Config, temperature: float) -> None:
    """A ValueError if `top_p` is given where nothing is drawn."""
    if temperature == 0 and options.chosen("top_p"):
        raise ValueError("top_p: greedy answers are not drawn; give a temperature above 0, or leave it out")
