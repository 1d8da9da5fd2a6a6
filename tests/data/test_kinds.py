"""Prose against code on real sets of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingot.data.config import SplitStep
from ingot.data.kinds import code_line_share, split_kind

Rows = Callable[[str], list[dict[str, Any]]]


def share_of_code(texts: list[str]) -> float:
    return sum(split_kind(text, SplitStep()).kind == "code" for text in texts) / len(texts)


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


@pytest.mark.parametrize(
    "line",
    [
        "def f(x):",
        "    return x + 1",
        "import numpy as np",
        "from a.b import c",
        "x = 3",
        "a, b = b, a",
        "total += n",
        "for row in rows:",
        "if x == 2:  # why",
        "print(x)",
        "}",
        "int main() {",
        "@property",
        ">>> f(2)",
        "$ pip install x",
        "class A(B):",
        "int x = 3;",
        "foo(",
    ],
)
def test_lines_of_code(line: str) -> None:
    assert code_line_share(line) == 1.0


@pytest.mark.parametrize(
    "line",
    [
        "The import of goods fell in May.",
        "For example: apples and pears",
        "If you can, do it.",
        "He said (as always) no.",
        "- a bullet point",
        "while this is prose, it ends here.",
        "Return to the start of the line",
        "",
        "Class of 1984",
        "from here to there",
        "with care: the cat, the dog",
    ],
)
def test_lines_of_prose(line: str) -> None:
    assert code_line_share(line) == 0.0
