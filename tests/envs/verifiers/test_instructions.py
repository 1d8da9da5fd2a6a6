"""Instruction checkers against the published ones: 114 instructions with parameters on 356 answers of ours, and GPT-4's answers.

The published verdicts are recorded (record_published.py says from what). Where ours differ, they follow the wording of the
instruction, and `DIFFERENCES` says how often and why.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.verifiers.errors import VerifierError
from ingot.envs.verifiers.instructions import custom
from ingot.envs.verifiers.instructions.follow import Followed, accuracies, follow, loose_variants
from ingot.envs.verifiers.instructions.instruction import find_instruction, instruction_ids
from ingot.envs.verifiers.text.words import sentences
from ingot.workspace.errors import DataError
from tests.envs.verifiers.instruction_cases import ANSWERS
from tests.envs.verifiers.record_published import FILE, answers_hash, real_answers
from tests.making.rows import read_rows

PUBLISHED = json.loads(FILE.read_text(encoding="utf-8"))
UNTESTED = {"words:start_verb"}  # needs the weights of nltk's tagger, which are in no package

LANGUAGE = "langdetect guesses at short texts, and one it cannot decide counts as followed"
SENTENCES = "e.g., P.S. and initials end no sentence here; OK does"
DIFFERENCES = {
    "language:response_language": (138, LANGUAGE),
    "change_case:english_capital": (10, LANGUAGE),
    "change_case:english_lowercase": (29, LANGUAGE),
    "length_constraints:number_sentences": (25, SENTENCES),
    "ratio:sentence_type": (8, SENTENCES),
    "ratio:sentence_balance": (5, SENTENCES),
    "words:last_first": (14, SENTENCES + "; words are compared without punctuation"),
    "sentence:alliteration_increment": (9, SENTENCES + "; the longest run counts, not the sum of all runs"),
    "sentence:increment": (9, SENTENCES),
    "length_constraints:nth_paragraph_first_word": (3, "blank paragraphs are not counted to find the nth"),
    "detectable_format:number_bullet_lists": (4, "an asterisk alone on its line does not swallow the next line"),
    "count:unique_word_count": (9, "a piece of only punctuation is no word"),
    "count:conjunctions": (2, "and, And and and, are one conjunction"),
    "count:words_japanese": (1, "an ellipsis is no word"),
    "ratio:sentence_words": (2, "the words must differ, which the published checker does not look at"),
    "words:consonants": (3, "a piece of only punctuation is no word"),
    "format:parentheses": (1, "all five brackets must be closed"),
    "format:line_indent": (1, "every blank line is passed over, not every second one"),
    "format:list": (5, "the separator must begin the line"),
    "format:sub-bullets": (286, "there must be bullets at all"),
    "format:no_bullets_bullets": (2, "sentences end in a period; a blank line may follow them"),
    "format:title_case": (1, "minor words need no capital"),
    "format:output_template": (2, "the headings come in order and nothing before them"),
    "custom:european_capitals_sort": (2, "Kyiv lies at 50 degrees north"),
    "custom:date_format_list": (1, "there are no months or days 0, and 1797 had no 29 February"),
}
GPT4_RANDOM = 1129  # its letter is an exclamation mark, for which the published checker draws another at random
GPT4_DIFFERENT = 1843  # langdetect takes three English words for another language


def cases_by_id() -> dict[str, list[tuple[dict[str, Any], str]]]:
    found: dict[str, list[tuple[dict[str, Any], str]]] = defaultdict(list)
    for id, kwargs, verdicts in PUBLISHED["cases"]:
        found[id].append((kwargs, verdicts))
    return found


CASES_BY_ID = cases_by_id()


def test_every_published_instruction_is_compared() -> None:
    assert PUBLISHED["answers"] == answers_hash(), "the answers changed: record the verdicts again"
    assert set(CASES_BY_ID) == set(instruction_ids()) - UNTESTED
    assert len(instruction_ids()) == 25 + 58


@pytest.mark.parametrize("id", CASES_BY_ID)
def test_verdicts_are_the_published_ones(id: str) -> None:
    ours = [[find_instruction(id, kwargs).follows(text) for text in ANSWERS] for kwargs, _ in CASES_BY_ID[id]]
    theirs = [verdicts for _, verdicts in CASES_BY_ID[id]]
    different = sum(
        str(int(our)) != their
        for row, verdicts in zip(ours, theirs, strict=True)
        for our, their in zip(row, verdicts, strict=True)
    )
    assert different == DIFFERENCES.get(id, (0, ""))[0]
    assert {True, False} == {bit for row in ours for bit in row}, (
        "the answers do not tell a right checker from a constant"
    )


def test_gpt4_answers_score_as_published(shared_data: Path) -> None:
    answers = {
        row["prompt"]: row["response"] for row in read_rows(shared_data / "ifeval" / "gpt4_responses_dev.jsonl.gz")
    }
    rows = read_rows(shared_data / "ifeval" / "ifeval_dev.jsonl.gz")
    different, found = [], []
    for row, (strict, loose) in zip(rows, PUBLISHED["gpt4"], strict=True):
        pairs = zip(row["instruction_id_list"], row["kwargs"], strict=True)
        ours = follow(answers[row["prompt"]], [find_instruction(id, kwargs) for id, kwargs in pairs])
        found.append(ours)
        if ("".join(map(str, map(int, ours.strict))), "".join(map(str, map(int, ours.loose)))) != (strict, loose):
            different.append(row["key"])
    assert [key for key in different if key != GPT4_RANDOM] == [GPT4_DIFFERENT]
    numbers = accuracies(found)
    assert [round(numbers[name] * count) for name, count in (("prompt_strict", 259), ("instruction_strict", 387))] == [
        204,
        324,
    ]
    assert [round(numbers[name] * count) for name, count in (("prompt_loose", 259), ("instruction_loose", 387))] == [
        212,
        332,
    ]


def test_loose_forgives_a_first_line_a_last_line_and_asterisks() -> None:
    no_comma = [find_instruction("punctuation:no_comma")]
    assert follow("Sure, here:\nfine text", no_comma) == Followed((False,), (True,))
    assert follow("fine text\nBye, all", no_comma) == Followed((False,), (True,))
    assert follow("a, b\nc, d\ne, f", no_comma) == Followed((False,), (False,))
    assert "bold" in loose_variants("**bold**")


def test_blank_answers_follow_nothing() -> None:
    for blank in ("", " \n\t"):
        assert follow(blank, [find_instruction("punctuation:no_comma")]) == Followed((False,), (False,))


def test_keywords_are_text_not_patterns() -> None:
    assert find_instruction("keywords:existence", {"keywords": ["C++ (fast)"]}).follows("I like c++ (FAST).")
    assert not find_instruction("keywords:existence", {"keywords": ["a.c"]}).follows("abc")
    assert not find_instruction("keywords:forbidden_words", {"forbidden_words": ["C++"]}).follows("I like C++ a lot")


@pytest.mark.parametrize(
    ("id", "kwargs", "problem"),
    [
        ("length_constraints:number_wrods", {}, "did you mean length_constraints:number_words"),
        ("length_constraints:number_words", {"num_words": 3}, "relation: field required"),
        ("length_constraints:number_words", {"num_words": 3, "relation": "about"}, "less than"),
        ("punctuation:no_comma", {"commas": 0}, "commas: extra inputs"),
        ("count:words_japanese", {"N": 0}, "greater than or equal to 1"),
    ],
)
def test_rows_that_cannot_be_checked_are_refused(id: str, kwargs: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        find_instruction(id, kwargs, place="rows.jsonl, line 3")


def test_nulls_are_left_out_and_whole_floats_are_integers() -> None:
    found = find_instruction("count:numbers", {"N": 2.0, "keyword": None})
    assert found.kwargs == {"N": 2} and found.follows("1 and 2")


def test_an_instruction_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def short(answer: str, most: int = 3) -> bool:\n    return len(answer) <= most\n"
    )
    assert find_instruction(f"{tmp_path}/mine.py:short", {"most": 5}).follows("hello")


def test_a_missing_tagger_is_an_error_of_the_verifier() -> None:
    with pytest.raises(VerifierError, match="needs nltk"):
        find_instruction("words:start_verb").follows("Go home.")


def test_sentences_of_real_answers_are_those_of_punkt(shared_data: Path) -> None:
    """The others hold e.g. and i.e., initials, or lists with letters, which Punkt decides by what it saw in a newspaper."""
    ours = [len(sentences(text)) for text in real_answers(shared_data)]
    same = sum(our == their for our, their in zip(ours, PUBLISHED["punkt"], strict=True))
    assert (same, len(ours)) == (1225, 1258)
    assert sum(abs(our - their) for our, their in zip(ours, PUBLISHED["punkt"], strict=True)) <= 0.01 * sum(ours)


def test_sentences_of_a_text_with_abbreviations() -> None:
    text = 'Dr. Smith left at 5 p.m. He said "Go!" (twice). Was it J. Brown? No... it was not. The end.'
    assert sentences(text) == [
        "Dr. Smith left at 5 p.m.",
        'He said "Go!"',
        "(twice).",
        "Was it J. Brown?",
        "No... it was not.",
        "The end.",
    ]


@pytest.mark.parametrize(
    "hostile", ["[" * 50_000, "<<" * 25_000, "\n" * 50_000, "*" * 50_000, " p." * 15_000, "\"'" * 25_000]
)
@pytest.mark.timeout(60)
def test_no_answer_takes_quadratic_time(hostile: str) -> None:
    for id in CASES_BY_ID:
        find_instruction(id, CASES_BY_ID[id][0][0]).follows(hostile + "x")


QUOTED = [["StudentID", "Subject", "Grade", "Semester", "Score"], *(["1", "Art", "B", "2", "3"] for _ in range(3))]


@pytest.mark.parametrize(
    ("rule", "answer", "followed"),
    [
        (custom.date_format_list, "1769-01-01, 1821-12-31", True),
        (custom.date_format_list, "1768-12-31", False),
        (custom.date_format_list, "1822-01-01", False),
        (custom.date_format_list, "1800-02-30", False),
        (custom.csv_quotes, "\n".join("\t".join(f'"{field}"' for field in row) for row in QUOTED), True),
        (custom.csv_quotes, "\n".join("\t".join(f'"{field}"' for field in row) for row in QUOTED)[:-3] + '"', False),
        (custom.reverse_newline, "\n".join(["Zimbabwe", *(f"Z{number:02}" for number in range(50, -1, -1))]), True),
        (custom.reverse_newline, "\n".join(["Zimbabwe", *(f"Z{number:02}" for number in range(49, -1, -1))]), False),
    ],
)
def test_what_just_follows_and_what_just_does_not(rule: Callable[[str], bool], answer: str, followed: bool) -> None:
    """The first and last year of Napoleon's life, a field that is a lone quote, 52 countries and 51."""
    assert rule(answer) is followed
