"""Decisions and reasons on 2,000 real documents, in `make test` on every third, equal those of datatrove with the same words."""

from __future__ import annotations

from collections import Counter

import pytest

from ingot.data.apply import apply
from ingot.data.step import Step
from ingot.data.steps.c4 import C4Step
from ingot.data.steps.fineweb import FineWebStep
from ingot.data.steps.gopher_quality import GopherQualityStep
from ingot.data.steps.gopher_repetition import GopherRepetitionStep
from tests.slow import first_fast

from .datatrove_filters import decisions

QUALITY = {
    "gopher_short_doc": "words <",
    "gopher_long_doc": "words >",
    "gopher_below_avg_threshold": "mean word length <",
    "gopher_above_avg_threshold": "mean word length >",
    "gopher_too_many_hashes": "hash signs per word >",
    "gopher_too_many_ellipsis": "ellipses per word >",
    "gopher_too_many_bullets": "bullet lines >",
    "gopher_too_many_end_ellipsis": "lines ending in an ellipsis >",
    "gopher_below_alpha_threshold": "words with a letter <",
    "gopher_enough_stop_words": "stop words <",
}
REPETITION = {
    "empty": "empty text",
    "dup_para_frac": "duplicate paragraphs >",
    "dup_para_char_frac": "characters in duplicate paragraphs >",
    "dup_line_frac": "duplicate lines >",
    "dup_line_char_frac": "characters in duplicate lines >",
    **{f"top_{n}_gram": f"characters in the most frequent {n}-gram >" for n in range(2, 5)},
    **{f"duplicated_{n}_n_grams": f"characters in duplicate {n}-grams >" for n in range(5, 11)},
}
FINEWEB = {
    "empty": "empty text",
    "line_punct_ratio": "lines ending in punctuation <",
    "short_line_ratio": "short lines >",
    "char_dup_ratio": "characters in duplicate lines >",
    "list_ratio": "newlines per word >",
}
C4 = {"lorem_ipsum": "lorem ipsum", "curly_bracket": "curly bracket", "too_few_sentences": "sentences <"}


def reasons(step: Step, texts: list[str]) -> tuple[list[str | None], list[str]]:
    """The name of the rule and the direction of the comparison, without the numbers; and the texts afterwards."""
    table = apply(step, texts)
    shown = []
    for reason in table.column("removed_by").to_pylist():
        words = (reason or "").split()
        sign = next((word for word in words if word in "<>"), "")
        name = words[: words.index(sign) - 1] if sign else words
        shown.append(" ".join([*name, sign]).strip() or None)
    return shown, table.column("text").to_pylist()


every = pytest.mark.parametrize("every", first_fast([3, 1]))


@every
@pytest.mark.parametrize(
    ("step", "module", "name", "names", "longest"),
    [
        (GopherQualityStep(), "gopher_quality_filter", "GopherQualityFilter", QUALITY, 2000),
        (
            GopherRepetitionStep(),
            "gopher_repetition_filter",
            "GopherRepetitionFilter",
            REPETITION,
            1000,
        ),  # the slow one
        (FineWebStep(), "fineweb_quality_filter", "FineWebQualityFilter", FINEWEB, 2000),
    ],
    ids=["gopher_quality", "gopher_repetition", "fineweb"],
)
def test_decisions_equal_datatrove(
    step: Step,
    module: str,
    name: str,
    names: dict[str, str],
    longest: int,
    every: int,
    real_documents: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [text[:longest] for text in real_documents[::every]]
    expected = [names[reason] if reason else None for reason, _ in decisions(monkeypatch, module, name, texts)]
    found, _ = reasons(step, texts)
    assert len(real_documents) == 2000
    assert found == expected
    assert len(Counter(found)) >= 4  # several rules were broken, and not by all


@every
@pytest.mark.parametrize("punctuation", [True, False])
def test_c4_equals_datatrove(
    punctuation: bool, every: int, real_documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_documents = real_documents[::every]
    expected = decisions(
        monkeypatch, "c4_filters", "C4QualityFilter", real_documents, filter_no_terminal_punct=punctuation
    )
    found, texts = reasons(C4Step(terminal_punctuation=punctuation), real_documents)
    assert found == [C4[reason] if reason else None for reason, _ in expected]
    for ours, (reason, theirs) in zip(texts, expected, strict=True):
        assert reason or ours == theirs
    assert {None, "curly bracket", "sentences <"} <= set(found)
