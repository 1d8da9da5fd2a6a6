"""Decontamination: hits and misses by hand, and against every n-gram of GSM8K."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.config import DecontaminateStep
from ingot.data.decontaminate import decontaminate, eval_ngrams, text_hits
from ingot.data.document import Document, Verdict
from ingot.data.shingles import words_of
from ingot.data.workers import Workers
from ingot.workspace.errors import DataError
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress

from .conftest import Recorder

WORKERS = Workers(StopSignal(), processes=1)
PROMPT = "Janet has nine green apples and gives four of them to her brother."  # 13 words


def verdict_on(text: str, **options: Any) -> Verdict:
    (verdict,) = decontaminate([Document("d", text, "s")], DecontaminateStep(**options), WORKERS, Progress())
    return verdict


@pytest.mark.parametrize(
    ("text", "leaks"),
    [
        (f"Before. {PROMPT} After.", True),
        (PROMPT.upper().replace(" ", ",\n "), True),  # case, punctuation and line breaks do not hide it
        ("nine green apples and gives four of them", True),  # exactly 8 words
        ("nine green apples and gives four of it", False),  # 7 words and a change
        ("Janet has nine red apples and gives three of them to her sister", False),
        ("", False),
    ],
)
def test_by_hand(text: str, leaks: bool) -> None:
    assert verdict_on(text, texts=[PROMPT]).removed is leaks


def test_thirteen_words_need_thirteen() -> None:
    assert verdict_on(f"so {PROMPT} yes", texts=[PROMPT], ngram_words=13).removed
    assert not verdict_on(PROMPT.replace("brother", "sister"), texts=[PROMPT], ngram_words=13).removed


def test_short_eval_texts_are_searched_as_a_whole() -> None:
    short = "What is twelve times seven?"
    assert verdict_on("He asked: what is twelve times seven, and waited.", texts=[short]).removed
    assert not verdict_on("What is twelve times eight?", texts=[short]).removed


def test_rows_of_numbers_are_no_evidence() -> None:
    numbers = "List: 0 1 2 3 4 5 6 7 8 9"
    assert not verdict_on("range gives 0 1 2 3 4 5 6 7 8 9", texts=[numbers, PROMPT]).removed
    assert verdict_on("range gives 0 1 2 3 4 5 6 7 8 9", texts=[numbers], min_plain_words=0).removed
    mixed = "add 1 to 2 and then 3 x"  # add, to, and, then: four plain words of nine
    assert verdict_on(mixed, texts=[mixed]).removed
    assert not verdict_on(mixed, texts=[mixed, PROMPT], min_plain_words=5).removed


def test_templates_are_cut_at_their_holes() -> None:
    template = "Question {number}: compute the sum of the following numbers and reply {answer}."
    text = "please compute the sum of the following numbers and reply soon"
    assert verdict_on(text, texts=[template]).removed
    assert not verdict_on("compute the sum of those numbers", texts=[template]).removed
    assert not verdict_on("question number compute the sum of the 3 following", texts=[template]).removed


def test_reason_and_spans_point_at_the_shared_words() -> None:
    text = f"Intro (of some kind). {PROMPT}  And something else that is long enough."
    verdict = verdict_on(text, texts=[PROMPT])
    assert verdict.rule == "shares with an eval"
    assert verdict.detail == "“janet has nine green apples and gives four” and 5 more n-grams"
    ((start, end),) = verdict.spans
    assert text[start:end] == PROMPT.rstrip(".")


def test_two_leaks_have_two_spans() -> None:
    other = "Paul reads seven long books every summer beside the lake"
    text = f"{other}. Words between them. {PROMPT}"
    assert [text[a:b] for a, b in verdict_on(text, texts=[PROMPT, other]).spans] == [other, PROMPT.rstrip(".")]


def test_common_ngrams_are_boilerplate_if_asked(recorder: Recorder) -> None:
    boilerplate = "Permission is hereby granted free of charge to any person obtaining a copy"
    documents = [Document(str(n), f"{boilerplate} of version {n}", "s") for n in range(5)]
    documents.append(Document("leak", f"{PROMPT} {boilerplate}", "s"))
    strict = decontaminate(documents, DecontaminateStep(texts=[boilerplate, PROMPT]), WORKERS, recorder)
    assert all(verdict.removed for verdict in strict)
    step = DecontaminateStep(texts=[boilerplate, PROMPT], max_common=4)
    lenient = decontaminate(documents, step, WORKERS, recorder)
    assert [verdict.removed for verdict in lenient] == [False] * 5 + [True]
    assert recorder.lines[-1] == "decontaminate: 6 n-grams are in more than 4 documents: no leak"


def test_what_is_too_short_is_said(recorder: Recorder) -> None:
    decontaminate([], DecontaminateStep(texts=[PROMPT, "Too short."]), WORKERS, recorder)
    assert recorder.lines == ["decontaminate: 6 n-grams of 1 eval texts; 1 texts are too short"]
    with pytest.raises(
        DataError, match=r"decontaminate: none of the 1 eval texts has 5 words, 3 of(.|\n)*fix: give longer"
    ):
        decontaminate([], DecontaminateStep(texts=["Too short."]), WORKERS, recorder)


def test_files_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": PROMPT}], "n": 3}) + "\n")
    assert verdict_on(PROMPT, against=[f"{tmp_path}/*.jsonl"]).removed
    (tmp_path / "b.txt").write_text(PROMPT)
    assert verdict_on(PROMPT, against=[f"{tmp_path}/b.txt"]).removed


def test_broken_eval_files_stop_the_stage(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"decontaminate: against: nothing matches"):
        verdict_on(PROMPT, against=[f"{tmp_path}/none.jsonl"])
    (tmp_path / "a.jsonl").write_text('{"question": "x"}\n{broken\n')
    with pytest.raises(DataError, match=r"a\.jsonl: eval file: row 2: not JSON(.|\n)*fix: repair it"):
        verdict_on(PROMPT, against=[f"{tmp_path}/a.jsonl"])
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"b\.txt: eval file: not UTF-8 at offset 0"):
        verdict_on(PROMPT, against=[f"{tmp_path}/b.txt"])


def test_gsm8k(shared_data: Path, rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    """Test questions planted in book pages are all found; the pages without them and the rest of GSM8K mostly pass."""
    path = str(shared_data / "gsm8k" / "test_dev.jsonl.gz")
    questions = [row["question"] for row in rows_of("gsm8k/test_dev.jsonl.gz")]
    pages = [row["text"][:3000] for row in rows_of("standard_ebooks/books.jsonl.gz")[:300]]
    planted = [f"{page}\n{question}\n{page[:200]}" for page, question in zip(pages, questions, strict=False)]
    train = [row["question"] for row in rows_of("gsm8k/train.jsonl.gz")[:3000]]
    documents = [Document(str(n), text, "s") for n, text in enumerate([*planted, *pages, *train])]
    for size, most_pages, most_train in ((8, 1, 60), (13, 0, 10)):
        step = DecontaminateStep(against=[path], ngram_words=size)
        removed = [verdict.removed for verdict in decontaminate(documents, step, WORKERS, Progress())]
        assert all(removed[: len(planted)])  # recall
        assert sum(removed[len(planted) : len(planted) + len(pages)]) <= most_pages  # precision
        assert sum(removed[-len(train) :]) <= most_train  # same style, other questions

        evals = [
            words_of(text) for row in rows_of("gsm8k/test_dev.jsonl.gz") for text in (row["question"], row["answer"])
        ]
        ngrams = {tuple(words[k : k + size]) for words in evals for k in range(len(words) - size + 1)}
        ngrams |= {tuple(words) for words in evals if 5 <= len(words) < size}
        ngrams = {ngram for ngram in ngrams if sum(len(word) > 1 and word.isalpha() for word in ngram) >= 3}
        sizes = {len(ngram) for ngram in ngrams}
        for text, found in list(zip(train, removed[-len(train) :], strict=True))[:1000]:
            words = words_of(text)
            grams = (tuple(words[k : k + n]) for n in sizes for k in range(len(words) - n + 1))
            assert found == any(gram in ngrams for gram in grams)


@given(st.lists(st.sampled_from("abc"), max_size=25), st.lists(st.sampled_from("abc"), min_size=2, max_size=8))
def test_hits_equal_brute_force(words: list[str], prompt: list[str]) -> None:
    ngrams, _, _ = eval_ngrams(
        DecontaminateStep(texts=[" ".join(prompt)], ngram_words=3, min_words=2, min_plain_words=0)
    )
    size = min(3, len(prompt))
    wanted = {tuple(prompt[k : k + size]) for k in range(len(prompt) - size + 1)}
    expected = [k for k in range(len(words) - size + 1) if tuple(words[k : k + size]) in wanted]
    assert [hit.position for hit in text_hits(" ".join(words), ngrams)] == expected
