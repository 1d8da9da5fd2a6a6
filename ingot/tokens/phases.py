"""Decides which source each row of a run comes from, when the mixture changes over the run.

A phase has a mixture and an end: a share of the steps, a number of tokens, or open. An open phase ends where `next_phase(row)`
says, for instance when a validation loss has stopped falling, and at the latest where the phase after it ends. The last phase
never ends, because a run that skips a stretch of data reads beyond its planned end.

Row g of the run belongs to the phase that begins at or before it; within the phase the mixture's schedule (`mixture.py`)
gives its source and which row of that source it is; the rows of a source are counted through all phases. So the order is a
function of the phases and of the rows where `next_phase` was called, and those few numbers are all the state there is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ingot.tokens.mixture import Apportionment
from ingot.workspace.errors import ArtifactError, RecipeError


class PhaseLike(Protocol):
    """A stretch of training with one mixture; with neither `until` nor `until_tokens` its end is open."""

    @property
    def until(self) -> float | None:
        """Ends at this share of the steps."""

    @property
    def until_tokens(self) -> int | None:
        """Ends when the run has seen this many tokens."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Share of rows by name of the source."""


class BatchSchedule(Protocol):
    """How many rows each step has; defined for every step from 0 on."""

    def rows(self, step: int) -> int:
        """The rows of this step."""

    def rows_before(self, step: int) -> int:
        """The rows of all earlier steps together."""


@dataclass(frozen=True)
class ConstantBatch:
    """The same number of rows in every step."""

    size: int

    def rows(self, step: int) -> int:
        return self.size

    def rows_before(self, step: int) -> int:
        return step * self.size


@dataclass(frozen=True)
class _Begun:
    """A phase whose first row is known."""

    begin: int
    schedule: Apportionment
    before: Mapping[str, int]  # rows of each source in the phases before


class PhaseSchedule:
    """The source of every row of a run, and which row of that source it is."""

    def __init__(
        self, phases: Sequence[PhaseLike], batches: BatchSchedule, *, sequence_length: int, total_steps: int
    ) -> None:
        run_rows = batches.rows_before(total_steps)
        ends: list[int | None] = []
        for phase in phases:
            if phase.until is not None:
                ends.append(batches.rows_before(round(phase.until * total_steps)))
            else:
                ends.append(None if phase.until_tokens is None else -(-phase.until_tokens // sequence_length))
        known = [end for end in ends if end is not None]
        if known != sorted(known):
            raise RecipeError(
                f"phases must end one after the other; they end at the rows {known}",
                fix="sort the phases by their ends",
            )
        if ends[-1] is not None and ends[-1] < run_rows:
            raise RecipeError(
                f"the phases end at row {ends[-1]}, the run at {run_rows}", fix="let the last phase last until 1"
            )
        self.names = sorted({name for phase in phases for name, weight in phase.weights.items() if weight > 0})
        self._mixtures = [Apportionment(phase.weights) for phase in phases]
        ends[-1] = None
        self._ends = [next((end for end in ends[number:] if end is not None), None) for number in range(len(ends))]
        self._switches: dict[int, int] = {}
        self._begun = self._begin_all()

    def rows(self, first: int, count: int) -> list[tuple[str, int]]:
        """The rows first .. first+count-1 of the run: the source of each, and how many rows of it came before."""
        begun, found = self._begun, list[tuple[str, int]]()
        while len(found) < count:
            row = first + len(found)
            number = bisect_right(begun, row, key=lambda phase: phase.begin) - 1
            phase = begun[number]
            here = count - len(found)
            if number + 1 < len(begun):
                here = min(here, begun[number + 1].begin - row)
            found += [
                (name, phase.before[name] + index) for name, index in phase.schedule.rows(row - phase.begin, here)
            ]
        return found

    def counts(self, rows: int) -> dict[str, int]:
        """How many of the first `rows` rows come from each source, as far as the ends of the phases are known."""
        phase = self._begun[bisect_right(self._begun, rows, key=lambda phase: phase.begin) - 1]
        counts = phase.schedule.counts(rows - phase.begin)
        return {name: phase.before[name] + counts.get(name, 0) for name in self.names}

    def phase(self, row: int) -> int:
        """The number of the phase that the row belongs to."""
        return bisect_right(self._begun, row, key=lambda phase: phase.begin) - 1

    def next_phase(self, row: int) -> None:
        """Begin the next phase at `row`: the phase before that row ends there, whatever its own end is."""
        number = self.phase(max(row - 1, 0))
        if row < 0 or number + 1 == len(self._mixtures):
            raise ValueError(f"row {row} is in the last phase, which has no next one")
        self._switches[number] = row
        self._begun = self._begin_all()

    def state(self) -> dict[str, Any]:
        """Where phases were ended by `next_phase`: [[phase, row], …]."""
        return {"switches": sorted([number, row] for number, row in self._switches.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on as if `next_phase` had been called as in the run that gave `state`."""
        switches = state.get("switches")
        try:
            found = {int(number): int(row) for number, row in switches}  # type: ignore[union-attr]
        except (TypeError, ValueError) as error:
            raise ArtifactError(
                f"the saved order of data is damaged: {switches!r}", fix="use an older checkpoint"
            ) from error
        if any(not 0 <= number < len(self._mixtures) - 1 for number in found):
            raise ArtifactError(
                f"the run that was saved ended phases {sorted(found)}; this recipe has {len(self._mixtures)}",
                fix="resume with the phases that the run was started with",
            )
        self._switches = found
        self._begun = self._begin_all()

    def _begin_all(self) -> list[_Begun]:
        """Every phase whose beginning is known. The list is replaced as a whole: a thread that reads sees old or new."""
        begin, before = 0, dict.fromkeys(self.names, 0)
        begun = []
        for number, (schedule, planned) in enumerate(zip(self._mixtures, self._ends, strict=True)):
            begun.append(_Begun(begin, schedule, dict(before)))
            end = self._switches.get(number, planned)
            if end is None:
                break
            end = max(begin, end)  # a phase whose planned end was passed by the one before it is left out
            for name, count in schedule.counts(end - begin).items():
                before[name] += count
            begin = end
        return begun
