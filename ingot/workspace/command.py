"""Describes what `ingot KIND FILE` of a stage has besides the options of every stage, without a word of how it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class CommandOption:
    """An option of a stage's command, which sets the stage's own option of this name.

    One that `prints` sets nothing: `Stage.examples` gives so many texts, and nothing runs.
    """

    name: str
    metavar: str
    help: str
    type: type = str
    minimum: int | None = None
    prints: bool = False


class Preview(Protocol):
    """What `--dry-run` prints of a stage that knows more than its name."""

    def as_json(self) -> Any:
        """Plain values for `--json`."""

    def lines(self, width: int) -> Sequence[str]:
        """Lines for a screen of this width."""


@dataclass(frozen=True)
class Results:
    """What the command prints when the stage is done: a table (rows of the same keys), where it is, and what to do next."""

    rows: Sequence[dict[str, str]]
    artifact: str
    next: Sequence[str] = ()
