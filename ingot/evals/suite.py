"""What an eval suite is: options, and a measurement of a checkpoint.

A suite is one file in evals/suites/, or a class in a file of the user's own (`suite: my_suite.py:Mine`). A file of a suite
imports torch inside its functions, because a recipe that names the suite is read without torch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ingot.evals.scores import Metric
from ingot.workspace.errors import ArtifactError
from ingot.workspace.kinds import Kind, Kinds

if TYPE_CHECKING:
    import torch

    from ingot.inference.engine import Engine
    from ingot.model.transformer import Transformer
    from ingot.tokens.tokenizer import Tokenizer
    from ingot.workspace.interrupt import StopSignal


@dataclass(frozen=True)
class Subject:
    """The checkpoint that is measured, and what a suite measures it with."""

    model: Transformer
    tokenizer: Tokenizer
    engine: Engine  # samples: `engine.complete(prompts, samplings)`, or envs/rollout.py
    shards: Path | None  # token shards with held-out text
    device: torch.device
    seed: int  # of sampling: the stage's
    task_seed: int  # of questions and texts: the same for all stages, so that checkpoints are compared on the same
    max_tokens: int  # of a prompt with its answer, which is what the engine has memory for
    stop: StopSignal  # a suite calls `stop.check()` between two steps of its work

    def held_out(self) -> Path:
        """The token shards, for a suite that cannot do without."""
        if self.shards is None:
            fix = "write inputs: {shards: PATH} or --input shards=PATH, or leave out suites on held-out text"
            raise ArtifactError("bits_per_byte and needle read held-out text, and eval has no shards", fix=fix)
        return self.shards


@dataclass(frozen=True)
class Measured:
    """What a suite found: numbers, and rows of samples.jsonl (scores.py)."""

    metrics: Sequence[Metric] = ()
    samples: Sequence[dict[str, Any]] = field(default_factory=list)


class Suite(Kind):
    """The base of every suite."""

    key: ClassVar[str] = "suite"
    package: ClassVar[str] = "ingot.evals.suites"
    long: ClassVar[bool] = (
        False  # it takes long: suites that do not are measured before it, so that their faults show early
    )
    suite: str = Field("", description="the suite: a name, or file.py:Name")

    @abstractmethod
    def measure(self, subject: Subject) -> Measured:
        """Measure the checkpoint."""


SUITES = Kinds(Suite, "eval suite")  # type: ignore[type-abstract]
