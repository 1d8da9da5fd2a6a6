"""Prose against code on real sets of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

from ingot.data.apply import apply
from ingot.data.steps.split import SplitStep, code_line_shares

Rows = Callable[[str], list[dict[str, Any]]]


def share_of_code(texts: list[str]) -> float:
    return apply(SplitStep(), texts).column("kind").to_pylist().count("code") / len(texts)


@pytest.mark.parametrize(("name", "least"), [("mbpp/mbpp.jsonl.gz", 0.96), ("cruxeval/cruxeval.jsonl.gz", 0.96)])
def test_code_is_found(rows_of: Rows, name: str, least: float) -> None:
    assert share_of_code([row["code"] for row in rows_of(name)]) >= least


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("gsm8k/train.jsonl.gz", "question"),
        ("standard_ebooks/books.jsonl.gz", "text"),
        ("openstax/modules.jsonl.gz", "text"),
        ("dclm_human_quality/docs.jsonl.gz", "text"),
    ],
)
def test_prose_is_not_code(rows_of: Rows, name: str, column: str) -> None:
    assert share_of_code([row[column] for row in rows_of(name)[:300]]) <= 0.01


# ruff: noqa: SIM905
CODE = """def f(x):
    return x + 1
import numpy as np
from a.b import c
x = 3
a, b = b, a
total += n
for row in rows:
if x == 2:  # why
print(x)
}
int main() {
@property
>>> f(2)
$ pip install x
class A(B):
int x = 3;
foo(""".split("\n")
PROSE = """The import of goods fell in May.
For example: apples and pears
If you can, do it.
He said (as always) no.
- a bullet point
while this is prose, it ends here.
Return to the start of the line
Class of 1984
from here to there
with care: the cat, the dog""".split("\n")


def test_single_lines() -> None:
    assert [line for line, share in zip(CODE, code_line_shares(pyarrow.array(CODE)), strict=True) if share != 1] == []
    assert [line for line, share in zip(PROSE, code_line_shares(pyarrow.array(PROSE)), strict=True) if share != 0] == []


def test_the_reader_knows_better() -> None:
    rows = [{"text": CODE[0], "kind": "prose"}, {"text": CODE[0], "kind": None}, {"text": PROSE[0], "kind": ""}]
    assert apply(SplitStep(), rows).column("kind").to_pylist() == ["prose", "code", "prose"]
