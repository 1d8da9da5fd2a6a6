"""Overlap of n-grams: hits and misses by hand, and against brute force over every n-gram of GSM8K."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.contamination.words import word_spans, words_of
from ingot.data.steps.decontaminate import DecontaminateStep
from ingot.data.steps.decontaminate.overlap import hits_of
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError
from tests.data.decontaminate.oracle import word_list
from tests.making.rows import write_rows

PROMPT = "Janet has nine green apples and gives four of them to her brother."  # 13 words
OTHER = "Paul reads seven long books every summer beside the lake"


def on(*documents: str, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = apply(DecontaminateStep(**options), list(documents)).to_pylist()
    return rows


def removed(*documents: str, **options: Any) -> list[bool]:
    return [row["removed_by"] is not None for row in on(*documents, **options)]


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
    assert removed(text, texts=[PROMPT]) == [leaks]


def test_thirteen_words_need_thirteen() -> None:
    texts = (f"so {PROMPT} yes", PROMPT.replace("brother", "sister"))
    assert removed(*texts, texts=[PROMPT], ngram_words=13) == [True, False]


def test_short_evals_are_searched_as_a_whole() -> None:
    texts = ("He asked: what is twelve times seven, and waited.", "What is twelve times eight?")
    assert removed(*texts, texts=["What is twelve times seven?"]) == [True, False]


def test_a_short_choice_is_no_evidence(tmp_path: Path) -> None:
    row = {"question": PROMPT, "choices": ["the United States of America", "no"]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    assert removed("In the United States of America.", PROMPT, against=[f"{tmp_path}/a.jsonl"]) == [False, True]


def test_rows_of_numbers_are_no_evidence() -> None:
    numbers = "List: 0 1 2 3 4 5 6 7 8 9"
    assert removed("range gives 0 1 2 3 4 5 6 7 8 9", texts=[numbers, PROMPT]) == [False]
    assert removed("range gives 0 1 2 3 4 5 6 7 8 9", texts=[numbers], min_plain_words=0) == [True]
    mixed = "add 1 to 2 and then 3 x"  # add, to, and, then: four plain words of nine
    assert removed(mixed, texts=[mixed]) == [True]
    assert removed(mixed, texts=[mixed, PROMPT], min_plain_words=5) == [False]


def test_templates_are_cut_at_their_holes() -> None:
    template = "Question {number}: compute the sum of the following numbers and reply {answer}."
    texts = (
        "please compute the sum of the following numbers and reply soon",
        "compute the sum of those numbers",
        "question number compute the sum of the 3 following",
    )
    assert removed(*texts, texts=[template]) == [True, False, False]


def test_columns_say_what_was_found_and_where() -> None:
    text = f"Intro (of “some” kind). {PROMPT}  And something else that is long enough. {OTHER}!"
    (row,) = on(text, texts=[OTHER, PROMPT])
    spans = [text[place["start"] : place["end"]] for place in row["contamination_spans"]]
    assert spans == [PROMPT.rstrip("."), OTHER]
    assert row["contamination_text"] == "Janet has nine green apples and gives four"
    assert row["contamination"] == 1.0
    assert row["contamination_hits"] == 6 + 3
    assert row["contamination_matches"] == [
        {"set": "texts", "eval": "1", "score": 1.0},
        {"set": "texts", "eval": "2", "score": 1.0},
    ]
    expected = "holds an eval: “Janet has nine green apples and gives four” and 8 more n-grams of texts:1"
    assert row["removed_by"] == expected


def test_shares_of_an_eval() -> None:
    """13 words have six 8-grams; the first ten words hold three of them."""
    (row,) = on("Janet has nine green apples and gives four of them. No more.", texts=[PROMPT], min_share=0.5)
    assert row["contamination"] == 0.5
    assert row["removed_by"].endswith("(50% of it)")
    (row,) = on("Janet has nine green apples and gives four of. No more.", texts=[PROMPT], min_share=0.5)
    assert row["contamination"] == pytest.approx(2 / 6)
    assert row["removed_by"] is None


def test_common_ngrams_are_boilerplate_if_asked() -> None:
    boilerplate = "Permission is hereby granted free of charge to any person obtaining a copy"
    documents = [f"{boilerplate} of version {n}" for n in range(5)] + [f"{PROMPT} {boilerplate}"]
    assert removed(*documents, texts=[boilerplate, PROMPT]) == [True] * 6
    assert removed(*documents, texts=[boilerplate, PROMPT], max_common=4) == [False] * 5 + [True]


def test_weights_of_the_corpus_by_hand() -> None:
    """The eval is a template of 10 words and 4 of its own: 7 windows of 8, of which the first 3 are the template's.

    8 documents hold the template, 1 of them the whole eval. With D = 9 documents and E = 1 eval a template window
    weighs ln(10 / 9), each of the other 4 ln(10 / 2).
    """
    template = "Choose the answer that best completes the following sentence about"
    question = f"{template} yellow tractors parked outside"
    documents = [f"{template} item {n} or so" for n in range(7)] + [f"well, {question}", "nothing of the kind here"]
    rows = on(*documents, texts=[question], weights="corpus", min_share=0.5)
    common, rare = np.log(10 / 9), np.log(10 / 2)
    assert rows[0]["contamination"] == pytest.approx(3 * common / (3 * common + 4 * rare))
    assert [row["removed_by"] is not None for row in rows] == [False] * 7 + [True, False]
    assert rows[7]["contamination"] == 1.0
    plain = on(*documents, texts=[question])
    assert [row["removed_by"] is not None for row in plain] == [True] * 8 + [False]
    assert plain[0]["contamination"] == pytest.approx(3 / 7)


def test_what_cannot_be_found_is_said() -> None:
    step = DecontaminateStep(texts=[PROMPT, "Too short."])
    assert step.say() == ["decontaminate: 6 n-grams of 1 evals; 1 evals are too short to be searched for"]
    with pytest.raises(DataError, match=r"none of the 1 evals has 5 words, 3 of(.|\n)*fix: give longer"):
        DecontaminateStep(texts=["Too short."]).say()


def test_files_of_every_kind(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": PROMPT}], "n": 3}
    write_rows(tmp_path / "a.jsonl", [row])
    (tmp_path / "b.txt").write_text(PROMPT)
    pyarrow.parquet.write_table(pyarrow.table({"question": [OTHER, PROMPT]}), tmp_path / "c.parquet")
    for name in ("*.jsonl", "b.txt", "c.parquet", ""):
        assert removed(PROMPT, against=[f"{tmp_path}/{name}"]) == [True]


def test_broken_eval_files_stop_the_step(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"decontaminate: against: nothing matches"):
        removed(PROMPT, against=[f"{tmp_path}/none.jsonl"])
    (tmp_path / "a.jsonl").write_text('{"question": "x"}\n{broken\n')
    with pytest.raises(DataError, match=r"a\.jsonl: eval file: row 2: not JSON(.|\n)*fix: repair it"):
        removed(PROMPT, against=[f"{tmp_path}/a.jsonl"])
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"b\.txt: eval file: the text is not UTF-8 at offset 0"):
        removed(PROMPT, against=[f"{tmp_path}/b.txt"])
    (tmp_path / "c.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    with pytest.raises(DataError, match=r"c\.jsonl\.gz: eval file"):
        removed(PROMPT, against=[f"{tmp_path}/c.jsonl.gz"])


def brute_force(evals: list[list[str]], size: int) -> set[tuple[str, ...]]:
    """Every n-gram to search for, by the definition: `evals` has the texts of each eval."""
    found = set()
    for texts in evals:
        words = [re.findall(r"\w+", text.lower()) for text in texts]
        longest = max(map(len, words))
        for text in words:
            if len(text) >= size:
                found |= {tuple(text[k : k + size]) for k in range(len(text) - size + 1)}
            elif 5 <= len(text) == longest:
                found.add(tuple(text))
    return {ngram for ngram in found if sum(len(word) > 1 and word.isalpha() for word in ngram) >= 3}


@pytest.mark.parametrize(("size", "most_pages", "most_train"), [(8, 1, 60), (13, 0, 10)])
def test_gsm8k(
    shared_data: Path, rows_of: Callable[[str], list[dict[str, Any]]], size: int, most_pages: int, most_train: int
) -> None:
    """Planted test questions are all found; clean pages and training questions go exactly where a set says so."""
    path = str(shared_data / "gsm8k" / "test_dev.jsonl.gz")
    evals = [[row["question"], row["answer"]] for row in rows_of("gsm8k/test_dev.jsonl.gz")]
    pages = [row["text"][:3000] for row in rows_of("standard_ebooks/books.jsonl.gz")[:300]]
    planted = [f"{page}\n{texts[0]}\n{page[:200]}" for page, texts in zip(pages, evals, strict=False)]
    train = [row["question"] for row in rows_of("gsm8k/train.jsonl.gz")[:3000]]
    found = np.array(removed(*planted, *pages, *train, against=[path], ngram_words=size))
    assert found[: len(planted)].all()  # recall
    assert found[len(planted) : len(planted) + len(pages)].sum() <= most_pages  # precision
    assert found[-len(train) :].sum() <= most_train  # same style, other questions

    ngrams = brute_force(evals, size)
    sizes = {len(ngram) for ngram in ngrams}
    for text, is_found in list(zip(train, found[-len(train) :], strict=True))[:1500]:
        words = re.findall(r"\w+", text.lower())
        grams = (tuple(words[k : k + n]) for n in sizes for k in range(len(words) - n + 1))
        assert is_found == any(gram in ngrams for gram in grams)


@given(st.lists(st.sampled_from("abc"), max_size=25), st.lists(st.sampled_from("abc"), min_size=2, max_size=8))
def test_hits_equal_brute_force(words: list[str], prompt: list[str]) -> None:
    step = DecontaminateStep(texts=[" ".join(prompt)], ngram_words=3, min_words=2, min_plain_words=0)
    size = min(3, len(prompt))
    wanted = {tuple(prompt[k : k + size]) for k in range(len(prompt) - size + 1)}
    expected = [k for k in range(len(words) - size + 1) if tuple(words[k : k + size]) in wanted]
    assert hits_of(step.index, Texts.of([" ".join(words)])).positions.tolist() == expected


@given(st.lists(st.text(alphabet="aBé ß\n_.,“7²Ω中𝒳😀-", max_size=30), max_size=5))
def test_words_are_those_of_a_pattern(texts: list[str]) -> None:
    column = Texts.of(texts)
    words = words_of(column, "letters")
    for number, text in enumerate(texts):
        expected = [match.span() for match in re.finditer(r"\w+", text)]
        assert word_spans(column, number, "letters").tolist() == [list(span) for span in expected]
        assert word_list(text, "letters") == [text[a:b].lower() for a, b in expected]
        first, last = words.offsets[number], words.offsets[number + 1]
        assert last - first == len(expected)
        alone = [words_of(Texts.of([text[a:b].lower()]), "letters").hashes[0] for a, b in expected]
        assert words.hashes[first:last].tolist() == alone
        plain = [len(text[a:b]) > 1 and text[a:b].isalpha() for a, b in expected]
        assert words.plain[first:last].tolist() == plain
