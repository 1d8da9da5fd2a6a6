"""Results of long work on many items, saved piece by piece, so that an interrupted stage resumes after what is there.

A piece is the results of a run of neighbouring items. It is written when it is whole, atomically, to

    FOLDER/START-STOP.jsonl      {"made_from": …, "sha256": …}, then one line for each item from START to STOP − 1

`made_from` is the fingerprint of everything that the results follow from. A piece of another fingerprint, or with a wrong
checksum, is removed, and the log says so.

Invariant: the pieces follow from the number of items and of processes alone, and each is computed by itself. Rounding depends on
what is computed together; a piece always has the same items, so an interrupted stage that resumes has, bit for bit, the results
of one that ran through. If it resumes in another number of processes, only what is missing is cut anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ingot.workspace.files import PARTIAL, write_text

Result = TypeVar("Result")


@dataclass(frozen=True)
class Resumable(Generic[Result]):
    """Where the results of some work are saved, and how they are cut into pieces and written.

    `together` items are never cut apart; a piece has at most `size` items, or `together` if that is more. `to_row` makes a
    result JSON, `from_row` makes it again, given its place among all.
    """

    folder: Path
    made_from: str
    size: int
    to_row: Callable[[Result], Any]
    from_row: Callable[[int, Any], Result]
    say: Callable[[str], None]
    together: int = 1

    def read(self) -> list[tuple[slice, list[Result]]]:
        """The pieces that are there, in order. What was made from something else, or cannot be read, is removed."""
        found, others = [], 0
        for partial in self.folder.glob(f"*{PARTIAL}"):  # of a process that was killed
            partial.unlink()
        for path in sorted(self.folder.glob("*-*.jsonl")):
            made_from, lines = _parse(path)
            start, stop = map(int, path.stem.split("-"))
            if made_from == self.made_from:
                rows = enumerate(map(json.loads, lines), start=start)
                found.append((slice(start, stop), [self.from_row(*row) for row in rows]))
                continue
            path.unlink()
            if made_from is None:
                self.say(f"{self.folder.name}/{path.name} is damaged: its {stop - start} items are worked on again")
            else:
                others += stop - start
        if others:
            self.say(f"{others} items in {self.folder.name} were made from something else: they are worked on anew")
        if found:
            self.say(f"{sum(len(made) for _, made in found)} items in {self.folder.name} are there from before")
        return found

    def put(self, run: slice, results: Sequence[Result]) -> None:
        """Save the results of a piece."""
        rows = (json.dumps(self.to_row(each), separators=(",", ":")) for each in results)
        body = "".join(f"{row}\n" for row in rows)
        head = json.dumps({"made_from": self.made_from, "sha256": _sha256(body)})
        write_text(self.folder / f"{run.start:09d}-{run.stop:09d}.jsonl", f"{head}\n{body}")

    def missing(self, count: int, processes: int, there: Sequence[slice]) -> list[slice]:
        """The pieces of `count` items that have to be worked on, in order, where `there` are those that do not."""
        gaps = list(_gaps(count, there))
        return [part for piece in self._pieces(count, processes) for part in _overlaps(piece, gaps)]

    def _pieces(self, count: int, processes: int) -> Iterator[slice]:
        """As many for each process as for any other, if there are enough items, and as equal as can be."""
        units = -(-count // self.together)  # what is not cut apart
        most = max(1, self.size // self.together)
        each = -(-units // (most * processes))  # pieces of each process
        parts = min(units, each * processes)
        for part in range(parts):
            start, stop = (units * number // parts * self.together for number in (part, part + 1))
            yield slice(start, min(stop, count))


def _parse(path: Path) -> tuple[str | None, list[str]]:
    """What a piece was made from, and its lines; None if it is damaged."""
    head, _, body = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    try:
        told = json.loads(head)
        made_from, checksum = str(told["made_from"]), told["sha256"]
    except (ValueError, KeyError, TypeError):
        return None, []
    return (made_from, body.split("\n")[:-1]) if checksum == _sha256(body) else (None, [])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _gaps(count: int, there: Sequence[slice]) -> Iterator[slice]:
    """What lies between the runs that are there."""
    end = 0
    for run in sorted(there, key=lambda run: run.start):
        if run.start > end:
            yield slice(end, run.start)
        end = max(end, run.stop)
    if end < count:
        yield slice(end, count)


def _overlaps(piece: slice, gaps: Sequence[slice]) -> Iterator[slice]:
    """The parts of a piece that lie in gaps."""
    for gap in gaps:
        start, stop = max(piece.start, gap.start), min(piece.stop, gap.stop)
        if start < stop:
            yield slice(start, stop)
