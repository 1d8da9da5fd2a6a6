"""decon: cases worked by hand, the numbers of decon's own tests, and equality with a plain oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.steps.decon import DeconStep
from ingot.data.steps.decon.index import DeconIndex, build_index
from ingot.data.steps.decon.score import adjusted, combined, required
from ingot.data.steps.decon.search import EVAL, LEFT, RIGHT, clusters
from ingot.data.steps.decon.tokens import tokens_of
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError
from tests.making.rows import write_rows

from .oracle import Options, Oracle, word_list

NAN = float("nan")


def config(folder: Path, evals: list[dict[str, str]], **options: Any) -> DeconStep:
    path = write_rows(folder / "evals.jsonl", evals)
    return DeconStep(against=[str(path)], **options)


def one(step: DeconStep, text: str) -> dict[str, Any]:
    row: dict[str, Any] = apply(step, [text]).to_pylist()[0]
    return row


def words(prefix: str, count: int) -> str:
    return " ".join(f"{prefix}{number}" for number in range(count))


# The score: METHODS' points 6 and 7, with the numbers worked out beside them.


@pytest.mark.parametrize(
    ("question", "answer", "passage", "ngrams", "answer_tokens", "expected"),
    [
        (1.0, NAN, NAN, 5, 0, 1.0),  # a question alone keeps its weight, however short
        (0.9, 1.0, 0.5, 30, 8, 0.7 * 0.9 + 0.2 * 1.0 + 0.1 * 0.5),  # 0.88
        (1.0, 0.0, NAN, 30, 8, 0.75),
        (0.9, 0.5, NAN, 30, 8, 0.75 * 0.9 + 0.25 * 0.5),  # 0.8
        (1.0, NAN, 0.0, 30, 0, 0.85),
        # 10 n-grams: confidence 0.75. QA weights 0.5625 and 0.4375
        (0.8, 0.6, NAN, 10, 8, 0.5625 * 0.8 + 0.4375 * 0.6),  # 0.7125
        # QP weights 0.6375 and 0.3625
        (0.8, NAN, 0.6, 10, 0, 0.6375 * 0.8 + 0.3625 * 0.6),  # 0.7275
        # QAP: 0.7 loses 0.175, half to each: 0.525, 0.2875, 0.1875
        (0.8, 0.6, 0.4, 10, 8, 0.525 * 0.8 + 0.2875 * 0.6 + 0.1875 * 0.4),  # 0.6675
        # and an answer of 2 tokens: confidence 0.75, hands 0.071875 on: 0.525, 0.215625, 0.259375
        (0.8, 0.6, 0.4, 10, 2, 0.525 * 0.8 + 0.215625 * 0.6 + 0.259375 * 0.4),  # 0.653125
        # in QA a short answer keeps its weight
        (0.8, 0.6, NAN, 30, 2, 0.75),
    ],
)
def test_scores_by_hand(
    question: float, answer: float, passage: float, ngrams: int, answer_tokens: int, expected: float
) -> None:
    found = np.array([question]), np.array([answer]), np.array([passage])
    assert combined(*found, np.array([ngrams]), np.array([answer_tokens])) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokens", "needed"), [(0, 1.0), (20, 1.0), (35, 0.9), (44, 0.84), (50, 0.8), (1000, 0.8)]
)  # 35 is half of the way from 20 to 50, 44 four fifths
def test_short_evals_need_more(tokens: int, needed: float) -> None:
    step = DeconStep(texts=["x"])
    length = np.array([float(tokens)])
    assert required(length, 0.8, step) == pytest.approx(needed)
    assert adjusted(np.array([0.99]), length, step) == pytest.approx(0.99 * 0.8 / needed)
    assert adjusted(np.array([1.0]), length, step) == 1.0


def test_settings_of_the_olmo_3_web_run() -> None:
    step = DeconStep(texts=["x"], threshold=0.88, perfect_until=25)
    assert required(np.array([25.0, 37.5, 50.0]), 0.88, step) == pytest.approx([1, 0.94, 0.88])
    assert step.min_question_share() == pytest.approx((0.88 - 0.3) / 0.7)


# Whole documents, worked by hand. `filler` words occur in no eval.


def test_a_question_with_a_changed_word(tmp_path: Path) -> None:
    """40 different words, 36 n-grams. Changing one in the middle breaks 5 of them: 31 / 36 = 0.861 (all idf alike).

    40 words of 20 … 50 need 0.8667 at that length: 1 - 0.2 * 20 / 30. So it stays; with 60 words 51 / 56 = 0.911
    is more than 0.8 and it goes.
    """
    other = {"question": words("other", 30)}
    for count, share, goes in ((40, 31 / 36, False), (60, 51 / 56, True)):
        step = config(tmp_path, [{"question": words("q", count)}, other])
        text = f"{words('filler', 25)} {words('q', count).replace('q20', 'x')} {words('filler', 25)}"
        row = one(step, text)
        assert row["contamination"] == pytest.approx(share)
        assert (row["removed_by"] is not None) is goes
        (span,) = row["contamination_spans"]
        assert text[span["start"] : span["end"]] == words("q", count).replace("q20", "x")


def test_rare_ngrams_weigh_more(tmp_path: Path) -> None:
    """Four evals begin with the same 24 words; three of them are found in part by the template alone.

    N = 4. Of the 20 n-grams inside the template each is in 4 evals: idf ln(4 / 4) = 0. So the template alone is worth
    nothing, and no match is stored for it, though it is over half of each question.
    """
    template = words("t", 24)
    step = config(tmp_path, [{"question": f"{template} {words(name, 16)}"} for name in "abcd"])
    row = one(step, f"{words('filler', 12)} {template} {words('filler', 30)}")
    assert row["contamination_matches"] is None
    row = one(step, f"{words('filler', 12)} {template} {words('a', 16)} {words('filler', 30)}")
    assert [match["eval"] for match in row["contamination_matches"]] == ["1"]
    assert row["contamination"] == 1.0


def test_answers_are_looked_for_behind_the_question(tmp_path: Path) -> None:
    question, filler = words("q", 50), words("filler", 49)
    evals = [{"question": question, "answer": "a0 a1"}, {"question": words("other", 30), "answer": "b0"}]
    step = config(tmp_path, evals)
    found = one(step, f"{filler} {question} {filler} a0 a1 {filler}")  # begins at the 50th word behind it
    assert found["contamination_matches"][0]["answer"] == 1.0
    assert found["contamination"] == 1.0
    for text in (
        f"{filler} {question} {filler} late a0 a1",  # the 51st: too late
        f"a0 a1 {filler} {question} {filler}",  # before the question
        f"{filler} {question} a0 between a1 {filler}",  # not in one piece
    ):
        row = one(step, text)
        assert row["contamination_matches"][0]["answer"] == 0.0
        assert row["contamination"] == 0.75
        assert row["removed_by"] is None  # a question in full without its answer: 0.75 < 0.8


def test_long_answers_count_by_ngrams(tmp_path: Path) -> None:
    """10 words have eight 3-grams; without the last 4 words four are left: 0.75 + 0.25 * 4 / 8 = 0.875."""
    question, answer = words("q", 50), words("a", 10)
    step = config(tmp_path, [{"question": question, "answer": answer}, {"question": words("other", 30)}])
    row = one(step, f"{words('filler', 30)} {question} so {words('a', 6)} {words('filler', 30)}")
    assert row["contamination_matches"][0]["answer"] == pytest.approx(0.5)
    assert row["contamination"] == pytest.approx(0.875)
    assert row["removed_by"].startswith("holds an eval: ")


def test_passages_are_looked_for_before_the_question(tmp_path: Path) -> None:
    """A passage of 12 words has nine 4-grams. It stops one word before the question, as decon's window does."""
    passage, question, answer = words("p", 12), words("q", 50), words("a", 10)
    evals = [{"passage": passage, "question": question, "answer": answer}, {"question": words("other", 30)}]
    step = config(tmp_path, evals)
    row = one(step, f"{words('filler', 30)} {passage} now {question} {answer} {words('filler', 5)}")
    assert row["contamination_matches"][0]["passage"] == 1.0
    assert row["contamination"] == pytest.approx(1.0)
    row = one(step, f"{words('filler', 30)} {words('p', 6)} x y z {question} {answer}")  # three 4-grams of nine
    assert row["contamination_matches"][0]["passage"] == pytest.approx(3 / 9)
    off = one(step.model_copy(update={"passages": False}), f"{passage} now {question} {answer} {words('filler', 5)}")
    assert off["contamination_matches"][0]["passage"] is None


def test_thresholds_decide_without_computing_again(tmp_path: Path) -> None:
    step = config(tmp_path, [{"question": words("q", 60)}, {"question": words("other", 30)}])
    strict = step.model_copy(update={"threshold": 0.95})
    assert step.annotation_key() == strict.annotation_key()
    text = f"{words('filler', 25)} {words('q', 60).replace('q20', 'x')} {words('filler', 25)}"
    assert one(step, text)["removed_by"] is not None
    assert one(strict, text)["removed_by"] is None
    assert step.annotation_key() != step.model_copy(update={"max_misses": 3}).annotation_key()
    with pytest.raises(ValueError, match=r"threshold 0\.4 is below 0\.51"):
        DeconStep(texts=["x"], threshold=0.4)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    row = {"question": words("q", 30)}
    repeated = {"question": "la " * 30}
    short_question = {"question": "who was it", "answer": words("a", 30)}
    step = config(tmp_path, [row, row, {"question": "too short"}, repeated, short_question])
    assert step.say() == [
        "decon: 27 n-grams of 2 evals; left out 1 duplicates and 2 evals that are too short to be searched for",
        "decon: 1 questions are shorter than an n-gram and cannot be found",
    ]
    with pytest.raises(DataError, match=r"none of the 1 evals has 20 tokens and 4 different words"):
        config(tmp_path, [{"question": "too short"}]).say()


def test_weights_of_the_corpus(tmp_path: Path) -> None:
    """One eval: a template of 30 words that 30 documents have, then 10 words of its own. Alone, all n-grams of an
    eval weigh ln(1 / 1) = 0 in decon; with 40 documents a template n-gram weighs ln(41 / 31), the others ln(41 / 2)."""
    template = words("t", 30)
    step = config(tmp_path, [{"question": f"{template} {words('own', 10)}"}], weights="corpus")
    documents = [f"{template} {words(f'd{number}x', 20)}" for number in range(29)]
    documents += [f"so {template} {words('own', 10)} {words('end', 9)}"]
    documents += [words(f"clean{number}x", 30) for number in range(10)]
    rows = apply(step, documents).to_pylist()
    common, rare = 26 * math.log(41 / 31), 10 * math.log(41 / 2)
    assert common / (common + rare) < 0.3  # so it is not stored
    assert [row["contamination"] > 0 for row in rows] == [False] * 29 + [True] + [False] * 10
    assert rows[29]["contamination"] == 1.0


# The oracle.

small = st.sampled_from("abcdefgh")
part = st.lists(small, max_size=14)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[list[str], list[str], list[str]]], list[str]]:
    evals = draw(st.lists(st.tuples(st.lists(small, min_size=1, max_size=16), part, part), min_size=2, max_size=5))
    pieces = draw(st.lists(st.one_of(st.lists(small, max_size=8), st.sampled_from([t for e in evals for t in e]))))
    return evals, [token for piece in pieces for token in piece]


@given(cases(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_equal_to_the_oracle(
    case: tuple[list[tuple[list[str], list[str], list[str]]], list[str]], size: int, every: int, misses: int
) -> None:
    evals, document = case
    options = Options(
        question=size, answer=2, passage=2, every=every, misses=misses, short_answer=1, answer_window=5,
        long_answer_window=9, passage_window=8, passage_misses=1,
    )  # fmt: skip
    step = DeconStep(
        texts=["x"], min_eval_tokens=0, min_eval_words=0, question_ngram=size, answer_ngram=2,
        passage_ngram=2, sample_every=every, max_misses=misses, short_answer=1, answer_window=5,
        long_answer_window=9, passage_window=8, passage_misses=1,
    )  # fmt: skip
    assert_equal(step, evals, [document], options)


def assert_equal(
    step: DeconStep,
    evals: list[tuple[list[str], list[str], list[str]]],
    documents: list[list[str]],
    options: Options,
) -> int:
    from unittest.mock import patch

    from ingot.data.contamination.evals import Eval
    from ingot.data.steps.decon import index as module

    unique = list(dict.fromkeys((tuple(q), tuple(a), tuple(p)) for q, a, p in evals))
    items = [Eval("s", str(n), " ".join(q), " ".join(a), " ".join(p)) for n, (q, a, p) in enumerate(unique)]
    with patch.object(module, "evals", lambda *_: iter(items)):
        index = build_index(step)
    oracle = Oracle([(list(q), list(a), list(p)) for q, a, p in unique], options)
    found = clusters(tokens_of(Texts.of([" ".join(words) for words in documents]), "words"), index, step)
    matches = 0
    for number, document in enumerate(documents):
        expected = sorted(
            (m.eval, m.left, m.right, m.question, m.answer, m.passage, m.score)
            for m in oracle.matches(document)
            if m.question >= 0.3 - 1e-9
        )
        mine = found.matches_at[:, 0] == number
        question, answer, passage = found.shares[mine].T
        rows = found.matches_at[mine]
        score = combined(
            question, answer, passage, index.question_ngrams[rows[:, EVAL]], index.answer_tokens[rows[:, EVAL]]
        )
        got = sorted(
            (int(r[EVAL]), int(r[LEFT]), int(r[RIGHT]), q, None if np.isnan(a) else a, None if np.isnan(p) else p, s)
            for r, q, a, p, s in zip(rows, question, answer, passage, score, strict=True)
        )
        assert len(got) == len(expected)
        for left, right in zip(got, expected, strict=True):
            assert left[:3] == right[:3]
            assert [value is None for value in left] == [value is None for value in right]
            numbers = [(a, b) for a, b in zip(left[3:], right[3:], strict=True) if a is not None]
            assert [a for a, _ in numbers] == pytest.approx([b for _, b in numbers], abs=1e-9)
        matches += len(expected)
    return matches


def test_real_evals_equal_the_oracle(rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    """GSM8K questions in book pages, whole, cut and changed, with decon's own numbers."""
    evals: list[tuple[list[str], list[str], list[str]]] = [
        (word_list(row["question"], "cleaned"), word_list(row["answer"], "cleaned"), [])
        for row in rows_of("gsm8k/test_dev.jsonl.gz")
    ]
    evals += [
        (word_list(row["question"], "cleaned"), word_list(row["answers"]["input_text"][0], "cleaned"),
         word_list(row["story"], "cleaned"))
        for row in rows_of("core_icl/coqa_2000.jsonl.gz")[:200]
        if isinstance(row["answers"], dict)
    ]  # fmt: skip
    pages = [word_list(row["text"][:2500], "cleaned") for row in rows_of("standard_ebooks/books.jsonl.gz")[:120]]
    documents = []
    for number, page in enumerate(pages):
        question, answer, passage = evals[number * 5 % len(evals)]
        cut = len(question) * 2 // 3
        changed = question[:9] + page[:3] + question[10:]
        planted = [passage + question + answer, question[:cut], question + page[:20] + answer, changed]
        documents.append(page[:100] + planted[number % 4] + page[100:])
    documents += [word_list(row["question"], "cleaned") for row in rows_of("gsm8k/train.jsonl.gz")[:200]]
    step = DeconStep(texts=["x"], min_eval_tokens=0, min_eval_words=0)
    assert assert_equal(step, evals, documents, Options()) > 100


def test_hot_ngrams_start_no_match(tmp_path: Path) -> None:
    """2,001 evals begin with the same 8 words (4 hot n-grams); a document with only these and one eval's own words."""
    evals = [{"question": f"{words('hot', 8)} {words(f'e{number}x', 14)}"} for number in range(2001)]
    step = config(tmp_path, evals)
    assert isinstance(step.index, DeconIndex)
    assert step.index.questions.hot.sum() == 4
    row = one(step, f"{words('hot', 8)} {words('filler', 30)}")
    assert row["contamination_matches"] is None
    row = one(step, f"{words('hot', 8)} {words('e7x', 14)} {words('filler', 30)}")
    assert [match["eval"] for match in row["contamination_matches"]] == ["8"]
    assert row["contamination"] == 1.0
