"""The columns that both steps of decontamination write about a document, and their rule.

    contamination           score of the best match, 0 if there is none
    contamination_set       its eval set; null if there is none, as all that follow
    contamination_eval      its id in the set
    contamination_text      the first shared words, as the document has them
    contamination_hits      n-grams of evals in the document (decontaminate), or of the best match's question (decon)
    contamination_spans     where the shared words are, in characters
    contamination_matches   every match, the best first (at most `MOST_MATCHES`): set, eval, score and the parts

Invariant: none of these depends on a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.step import Rule

COLUMNS = (
    "contamination",
    "contamination_set",
    "contamination_eval",
    "contamination_text",
    "contamination_hits",
    "contamination_spans",
    "contamination_matches",
)
MOST_MATCHES = 1000
TEXT_CHARACTERS = 300

Span = tuple[int, int]


@dataclass(frozen=True)
class DocumentMatches:
    """What was found in one document; `matches` has mappings with set, eval, score, best first."""

    row: int
    text: str
    hits: int
    spans: list[Span]
    matches: list[dict[str, Any]] = field(default_factory=list)


def columns(rows: int, found: list[DocumentMatches], parts: tuple[str, ...] = ()) -> dict[str, pyarrow.Array]:
    """The columns of a table of `rows` documents, of which some hold something. `parts`: further numbers of a match."""
    number, text = pyarrow.float64(), pyarrow.string()
    span = pyarrow.struct([("start", pyarrow.int64()), ("end", pyarrow.int64())])
    match = pyarrow.struct([("set", text), ("eval", text), ("score", number), *((part, number) for part in parts)])
    by_row = {item.row: item for item in found}

    def column(kind: Any, value: Any) -> pyarrow.Array:
        values = [None] * rows
        for row, item in by_row.items():
            values[row] = value(item)
        return pyarrow.array(values, kind)

    scores = np.zeros(rows)
    for row, item in by_row.items():
        scores[row] = item.matches[0]["score"]
    return {
        "contamination": pyarrow.array(scores),
        "contamination_set": column(text, lambda item: item.matches[0]["set"]),
        "contamination_eval": column(text, lambda item: item.matches[0]["eval"]),
        "contamination_text": column(text, lambda item: item.text[:TEXT_CHARACTERS]),
        "contamination_hits": column(pyarrow.int64(), lambda item: item.hits),
        "contamination_spans": column(
            pyarrow.list_(span), lambda item: [{"start": start, "end": end} for start, end in item.spans]
        ),
        "contamination_matches": column(pyarrow.list_(match), lambda item: item.matches[:MOST_MATCHES]),
    }


def joined(spans: list[Span]) -> list[Span]:
    """The same characters with overlapping and touching spans made one."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def flat_matches(table: pyarrow.Table) -> tuple[pyarrow.StructArray, NDArray[np.int64]]:
    """All matches of all documents, and the row of each."""
    lists = table.column("contamination_matches").combine_chunks()
    return lists.flatten(), np.asarray(lists.value_parent_indices().to_numpy(), np.int64)


def rule(table: pyarrow.Table, broken: NDArray[np.bool_], reasons: dict[int, str]) -> Rule:
    """The rule of both steps; `reasons` says for each broken row what it holds."""
    spans: list[list[Span]] = [[]] * len(table)
    stored = table.column("contamination_spans").combine_chunks()
    for row in np.flatnonzero(broken).tolist():
        spans[row] = [(span["start"], span["end"]) for span in stored[row].as_py()]
    values = [reasons.get(row, "") for row in range(len(table))]
    return Rule("holds an eval:", broken, values, spans=spans)
