"""Reports what leaked, by eval set: the documents that are removed for it, the evals that they hold, and both texts.

A set of which nothing was found is listed too, with how many of its evals could be searched for at all: a zero is only
good news together with that number. The ids of those found let evaluations score them apart (evals/scores/contamination.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.contamination.evals import Against, EvalIndex, eval_texts

EXAMPLES = 3  # by set
SHOWN = 600  # characters of an eval
TEXTS = 1000  # evals whose texts are in the report


Found = tuple[NDArray[np.bool_], dict[int, list[dict[str, Any]]]]


def eval_report(
    index: EvalIndex,
    tables: Iterable[pyarrow.Table],
    found_in: Callable[[pyarrow.Table], Found],
    against: Against,
    templates: Sequence[str],
) -> dict[str, Any]:
    """The report on documents that a step has annotated; `tables` have id and the step's columns, `found_in` says which
    of them go, and the matches for which they do."""
    sizes = index.sizes()
    documents = flagged = 0
    by_set: dict[str, dict[str, Any]] = {}
    for name, (evals, searched) in sizes.items():
        by_set[name] = {"evals": evals, "searched": searched, "found": set(), "documents": 0, "examples": []}
    for table in tables:
        documents += len(table)
        broken, found = found_in(table)
        flagged += int(broken.sum())
        for row, matches in found.items():
            for name in {match["set"] for match in matches}:
                entry, own = by_set[name], [match for match in matches if match["set"] == name]
                entry["documents"] += 1
                entry["found"].update(match["eval"] for match in own)
                example = {
                    "document": table["id"][row].as_py(),
                    **own[0],
                    "text": table["contamination_text"][row].as_py(),
                }
                entry["examples"] = sorted([*entry["examples"], example], key=worst_last)[:EXAMPLES]
    texts = found_texts(against, templates, by_set)
    for name, entry in by_set.items():
        for example in entry["examples"]:
            example["eval_text"] = texts.get(f"{name}:{example['eval']}", "")
    for entry in by_set.values():
        entry["ids"] = sorted(entry["found"])
        entry["found"] = len(entry["ids"])
        entry["share_found"] = round(entry["found"] / entry["evals"], 6)
    return {"documents": documents, "removed": flagged, "sets": dict(sorted(by_set.items())), "texts": texts}


def worst_last(example: dict[str, Any]) -> tuple[float, str, str]:
    """The order of examples; does not depend on the order of the documents."""
    return -example["score"], str(example["document"]), example["eval"]


def found_texts(against: Against, templates: Sequence[str], by_set: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The texts of the evals that were found, by `set:id`: of the examples, and of others up to `TEXTS`."""
    shown = {(name, example["eval"]) for name, entry in by_set.items() for example in entry["examples"]}
    others = sorted({(name, number) for name, entry in by_set.items() for number in entry["found"]} - shown)
    wanted = {*shown, *others[:TEXTS]}
    found = {}
    for item in eval_texts(against, templates) if wanted else ():
        if (item.set, item.id) in wanted:
            found[f"{item.set}:{item.id}"] = "\n".join(item.texts)[:SHOWN]
    return found


def lines(report: dict[str, Any]) -> list[str]:
    """The report as a table for a terminal."""
    heads = ("eval set", "evals", "searched", "found", "share", "documents")
    rows = [heads]
    for name, entry in report["sets"].items():
        numbers = (entry["evals"], entry["searched"], entry["found"])
        rows.append((name, *(f"{n:,}" for n in numbers), f"{entry['share_found']:.1%}", f"{entry['documents']:,}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    return [f"{report['removed']:,} of {report['documents']:,} documents hold an eval", *table]
