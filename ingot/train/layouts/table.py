"""Writes the table of layouts: which pair has passed on CPU processes, on one shared card, on many GPUs.

What a run found is kept as JSON, a file for each of the three; the table is made from these and the list of cases, so that a
pair nobody has run stands there as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ingot.train.layouts.cases import METHODS, PARALLELISMS, VARIANTS, make_case

HOW = {"cpu": "CPU processes", "card": "processes that share a GPU", "gpus": "a GPU each"}
SIGNS = {"cpu": "c", "card": "1", "gpus": "n"}
OPEN, WRONG = "–", "wrong"


def layout_table(found: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """A row for every method and every further kind of parallelism, a column for every kind; `found`: records by how they ran."""
    verdicts = {(how, str(each["case"])): str(each["verdict"]) for how, records in found.items() for each in records}
    columns = [*PARALLELISMS, *VARIANTS]
    rows = [f"| | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    rows.append(_row("alone", [(kind,) for kind in columns], None, verdicts))
    for other in list(PARALLELISMS)[1:]:
        pairs: list[tuple[str, ...] | None] = [
            (kind, other)
            if kind in PARALLELISMS and list(PARALLELISMS).index(kind) < list(PARALLELISMS).index(other)
            else None
            for kind in columns
        ]
        rows.append(_row(f"× {other}", pairs, None, verdicts))
    rows += [_row(f"× {method}", [(kind,) for kind in columns], method, verdicts) for method in METHODS]
    return "\n".join(rows)


def _row(
    name: str, cells: Sequence[tuple[str, ...] | None], method: str | None, verdicts: Mapping[tuple[str, str], str]
) -> str:
    return (
        f"| {name} | " + " | ".join("" if kinds is None else _cell(kinds, method, verdicts) for kinds in cells) + " |"
    )


def _cell(kinds: tuple[str, ...], method: str | None, verdicts: Mapping[tuple[str, str], str]) -> str:
    """The signs of where it has passed; `refused`, or where it is wrong."""
    case = make_case(kinds, method).name
    found = {how: verdicts[how, case] for how in HOW if (how, case) in verdicts}
    if "refused" in found.values():
        return "refused"
    passed = " ".join(SIGNS[how] for how, verdict in found.items() if verdict == "equal")
    failed = " ".join(f"{WRONG} {SIGNS[how]}" for how, verdict in found.items() if verdict != "equal")
    return " ".join(filter(None, (passed, failed))) or OPEN
