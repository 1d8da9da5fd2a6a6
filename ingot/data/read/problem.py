"""Records what went wrong while reading: every lost or repaired record is named, counted and sampled.

Invariant: the number of documents that come out, plus the problems that are not `kept`, accounts for every record that
was found; damage to one record costs that record only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ingot.workspace.errors import DataError

ORDINARY = frozenset(
    {
        "empty", "no description", "budget", "binary", "redirect", "other namespace", "not a document",
        "not text", "not a page",
    }
)  # fmt: skip
"""Rules that are no damage: `on_damage: stop` does not stop at them."""

SAMPLES = 20  # problems stored to look at, by rule; all are counted
SHOWN = 2000  # characters of such a problem's text


@dataclass(frozen=True, slots=True)
class Problem:
    """A file, record or row that was not read as it stands. `kept`: repaired, and a document all the same."""

    place: str
    rule: str
    detail: str = ""
    bytes: int = 0
    text: str = ""
    kept: bool = False


class Unreadable(Exception):
    """A record that cannot be used: the rule it breaks and the numbers."""

    def __init__(self, rule: str, detail: str = "") -> None:
        super().__init__(f"{rule} {detail}".rstrip())
        self.rule, self.detail = rule, detail


@dataclass
class ReadProblems:
    """Counts by rule, and the first problems of each."""

    stop: bool = False
    dropped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    samples: list[Problem] = field(default_factory=list)

    def add(
        self, place: str, rule: str, detail: str = "", *, size: int = 0, shown: str | bytes = "", kept: bool = False
    ) -> None:
        """Count a problem; the first of each rule are stored with the start of what was read."""
        if self.stop and rule not in ORDINARY:
            raise DataError(
                f"{rule} {detail}".rstrip(),
                place=place,
                fix="repair the file, or let the source go on: `on_damage: continue`",
            )
        counts = self.repaired if kept else self.dropped
        counts[rule] += 1
        if counts[rule] <= SAMPLES:
            start = shown[:SHOWN]
            text = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
            text = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
            self.samples.append(Problem(place, rule, detail, size, text, kept))
