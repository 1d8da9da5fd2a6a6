"""Repeated lines and paragraphs against plain Python, whichever way the documents are cut into shards."""

from __future__ import annotations

import re
from typing import Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingot.data.steps.exact_dedup import ExactDedupStep
from tests.data.dedup.shards import run

SEPARATORS = {"line": re.compile(r"\n"), "paragraph": re.compile(r"\n[ \t]*\n(?:[ \t]*\n)*")}


def by_hand(texts: list[str], scope: str, minimum: int) -> list[tuple[str, list[tuple[int, int]]]]:
    """Each text without pieces seen before, and the character spans that were cut out."""
    seen: set[str] = set()
    found = []
    for text in texts:
        pieces, at = [], 0
        for separator in SEPARATORS[scope].finditer(text):
            pieces.append((at, separator.end()))
            at = separator.end()
        if at < len(text):
            pieces.append((at, len(text)))
        kept, spans = "", []
        for start, stop in pieces:
            piece = text[start:stop]
            key = " ".join(piece.lower().split())
            if len(piece.strip(" \t\n").encode()) >= minimum and key in seen:
                spans.append((start, stop))
            else:
                kept += piece
                if len(piece.strip(" \t\n").encode()) >= minimum:
                    seen.add(key)
        if spans and spans[-1][1] == len(text):
            kept = kept.rstrip(" \t\n")
        found.append((kept, spans))
    return found


LINES = st.lists(
    st.sampled_from(["alpha beta", "Alpha  beta", "gämma", "x", "", " ", "\t", "delta 漢字", "gämma "]), max_size=8
).map("\n".join)


@settings(max_examples=30)
@given(st.lists(LINES, min_size=1, max_size=6), st.sampled_from(["line", "paragraph"]), st.data())
@example(["alpha beta\n\n\ngämma", "x\n \n\nALPHA beta\n\ngämma\n"], "paragraph", None)
def test_repeats_are_cut_out_as_by_hand(
    texts: list[str], scope: Literal["line", "paragraph"], data: st.DataObject | None
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(texts)), max_size=2))) if data else [1]
    result = run(ExactDedupStep(scope=scope, min_bytes=5), texts, cuts)
    for row, before, (kept, spans) in zip(result.rows, texts, by_hand(texts, scope, 5), strict=True):
        assert row["text"] == kept
        flat = row["_repeated_spans"]
        assert list(zip(flat[::2], flat[1::2], strict=True)) == spans
        assert row["repeated_count"] == len(spans)
        size = max(1, len(before.encode()))
        assert abs(row["repeated_share"] - (1 - len(kept.encode()) / size if spans else 0)) < 1e-6
        assert row["broken"] == (bool(spans) and not kept)


def test_share_that_may_be_cut_out() -> None:
    line = "a line of more than thirty bytes, repeated"
    texts = [line, f"{line}\nnew", f"{line}\n{'new ' * 30}"]
    strict, lax = ExactDedupStep(scope="line", max_removed=0.5), ExactDedupStep(scope="line")
    assert [row["broken"] for row in run(strict, texts).rows] == [False, True, False]
    assert [row["broken"] for row in run(lax, texts).rows] == [False, False, False]
    assert strict.annotation_key() == lax.annotation_key()  # a threshold: nothing is computed again
