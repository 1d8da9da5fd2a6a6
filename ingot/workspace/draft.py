"""Describes the stages of a recipe to each other's checks (`Stage.check`): what is known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ingot.workspace.config import Config


@dataclass(frozen=True)
class FromStage:
    """An input that an earlier stage of the recipe makes."""

    stage: str
    artifact: str


@dataclass(frozen=True)
class FromPath:
    """An input that lies on disk already; `path` is the artifact itself, not the stage folder around it."""

    path: Path
    artifact: str


InputSource = FromStage | FromPath
Inputs = Mapping[str, InputSource | Mapping[str, InputSource]]
"""By role; a role that takes many artifacts maps names to sources."""


class StageKind(Protocol):
    """What the check of another stage may ask of a stage's kind (the class is that of stage.py)."""

    kind: str

    @property
    def needs(self) -> Mapping[str, str]:
        """The kind of artifact that fills each role."""

    @property
    def makes(self) -> tuple[str, ...]:
        """The kinds of artifacts that it writes."""


@dataclass(frozen=True)
class DraftStage:
    """A stage of a recipe that is being read.

    `config` is None if it had problems of its own, `model` (a ModelConfig) where the recipe does not say which one it trains.
    """

    name: str
    kind: StageKind
    config: Config | None
    inputs: Inputs
    model: Any = None


Draft = Mapping[str, DraftStage]
"""All stages of the recipe by name, in their order."""


@dataclass(frozen=True)
class StageProblem:
    """What is wrong, with which option of the stage (none: the stage itself), and what to do; `stage` if it is another's."""

    problem: str
    fix: str | None = None
    option: str = ""
    stage: str | None = None
