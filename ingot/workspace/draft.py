"""Describes the stages of a recipe to each other's checks (`Stage.check`): what is known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ingot.workspace.config import Config
    from ingot.workspace.stage import Stage


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


@dataclass(frozen=True)
class DraftStage:
    """A stage of a recipe that is being read.

    `config` is None if it had problems of its own, `model` (a ModelConfig) where the recipe does not say which one it trains.
    """

    name: str
    kind: Stage
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
