"""What both modes of decontamination share, whether they look at one document or count in all: the evals, told and reported."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from ingot.data.decontaminate.config import DecontaminateStep
from ingot.data.step import Report, Step

if TYPE_CHECKING:
    import pyarrow


class EvalIndex(Protocol):
    """Evals that can be searched for."""

    def say(self) -> list[str]:
        """How many there are, and how many are too short, for the person watching."""
        ...

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By eval set: how many there are, and how many of them are searched for."""
        ...


class AgainstEvals(Step[DecontaminateStep]):
    """A step that compares documents with an index of evals."""

    @property
    @abstractmethod
    def index(self) -> EvalIndex:
        """The evals; built once in each process."""

    def say(self) -> list[str]:
        return self.index.say()

    def report(self, tables: Iterable[pyarrow.Table]) -> Report:
        from ingot.data.decontaminate.report import eval_report, lines

        found = eval_report(self, tables)
        return Report(found, lines(found))
