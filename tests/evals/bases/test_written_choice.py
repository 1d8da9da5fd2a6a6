"""Choices that are written: simple-evals' rule on odd answers, and what becomes of them in exams."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.bases.written_choice import written_choice
from ingot.evals.engine.request import Generation, Question, Written
from ingot.evals.scores.scores import Metric
from tests.evals.against_lm_eval.published import rows_of
from tests.evals.suites.asking import last_text, measure, subject, values, written
from tests.making.rows import write_rows

PUBLISHED = re.compile(r"(?i)Answer[ \t]*:[ \t]*\$?([A-D])\$?")  # simple-evals, the first match
AS_PUBLISHED = {
    "Answer: A": "A",
    "Answer: D": "D",
    "answer: b": "B",
    "ANSWER: C": "C",
    "aNsWeR:c": "C",
    "Answer:B": "B",
    "Answer :\tB": "B",
    "Answer  :  B": "B",
    "Answer: $B$": "B",
    "Answer: $B": "B",
    "Answer: B.": "B",
    "Answer: B)": "B",
    "Answer: B) the second": "B",
    "Answer: B\n": "B",
    "It is warm.\n\nAnswer: C": "C",
    "Final answer: D": "D",
    "**Answer: D**": "D",
    "# Answer: A": "A",
    "- Answer: A": "A",
    "'Answer: B'": "B",
    "Answer: B (mitosis)": "B",
    "Answer: B, not C": "B",
    "Answer: A or B": "A",
    "The correct Answer: B\nThank you.": "B",
    "Answer:": None,
    "": None,
    " \n ": None,
    "B": None,
    "The answer is B": None,
    "(B)": None,
    "Answer: 2": None,
    "Answer: E": None,
    "Answer: none of them": None,
    "Answer: the second": None,
    "Answer - B": None,
    "Answer = B": None,
    "Réponse: B": None,
    "Answer: 'B'": None,
    "Answer: ?": None,
    "\\boxed{B}": None,
    "Answers vary; none is right.": None,
}
DIFFERENT = {  # ours: why
    "**Answer:** B": ("B", "bold"),
    "**Answer**: B": ("B", "bold"),
    "Answer: **B**": ("B", "bold"),
    "Answer: __B__": ("B", "bold"),
    "*Answer:* *C*": ("C", "italics"),
    "Answer: `B`": ("B", "code"),
    "Answer: \\boxed{B}": ("B", "boxed"),
    "Answer: $\\boxed{C}$": ("C", "boxed"),
    "Answer: $\\boxed{\\text{C}}$": ("C", "boxed"),
    "Answer: \\(\\mathrm{D}\\)": ("D", "LaTeX"),
    "Answer: \\[ \\textbf{(A)} \\]": ("A", "LaTeX"),
    "Answer: (B)": ("B", "brackets"),
    "Answer: [b]": ("B", "brackets"),
    "Answer：B": ("B", "a wide colon"),
    "Answer:\nB": ("B", "on the next line"),
    "**Answer:**\n\n(C)": ("C", "on a later line"),
    "Answer: A? No.\nAnswer: C": ("C", "the last one counts"),
    "If Answer: A were right, x.\nAnswer: B\nSo Answer: D": ("D", "the last one counts"),
    "Answer: B\nAnswer: unsure": ("B", None),
    "The format is 'Answer: $LETTER'.\nAnswer: B": ("B", None),
    "Answer: Because it rains": (None, "a word is no letter"),
    "Answer: Cats": (None, "a word is no letter"),
    "Answer: Choice B": (None, "a word is no letter"),
    "Answer: all of these": (None, "a word is no letter"),
    "Answer: cats\nAnswer: D": ("D", "a word is no letter"),
}


def test_the_published_rule() -> None:
    matches = {text: PUBLISHED.search(text) for text in AS_PUBLISHED}
    assert {text: match[1].upper() if match else None for text, match in matches.items()} == AS_PUBLISHED
    assert {text: _letter(text) for text in AS_PUBLISHED} == AS_PUBLISHED


@pytest.mark.parametrize("text", DIFFERENT)
def test_what_is_more_robust(text: str) -> None:
    expected, why = DIFFERENT[text]
    match = PUBLISHED.search(text)
    assert _letter(text) == expected
    assert ((match[1].upper() if match else None) == expected) == (why is None)


def test_other_numbers_of_choices() -> None:
    assert written_choice("Answer: C", 2) is None
    assert written_choice("Answer: J", 10) == 9
    assert written_choice("Answer: e", 5) == 4


def test_hostile_answers_take_linear_time() -> None:
    for text in ("Answer: " * 50_000, "Answer:" + " \n" * 100_000, "\\boxed{" * 50_000, "answer" * 50_000):
        assert written_choice(text, 4) is None


def test_mmlu_is_asked_as_in_simple_evals(shared_data: Path) -> None:
    """The prompt, letter by letter, without examples; a model that knows the file is right, and one that says nothing is not."""
    rows = {row["question"].strip(): row for row in rows_of(shared_data, "mmlu/test_dev")}
    suite = SUITES.read({"suite": "mmlu", "answer": "written", "by_group": True, "limit": 114})
    asked: list[Generation] = []

    def script(request: Generation) -> str:
        asked.append(request)
        question = last_text(request).split("\n\n", 1)[1].rsplit("\n\nA) ", 1)[0]
        letter = "ABCD"[rows[question]["answer"]]
        return ("I do not know.", f"Perhaps.\n**Answer:** ({letter})", f"Not Answer: {letter}\nAnswer: Z")[
            len(asked) % 3
        ]

    found = _by_name(measure(suite, script, subject(shared_data, "chat")))
    row = next(iter(rows.values()))
    first = next(request for request in asked if row["question"].strip() in last_text(request))
    assert first.prompt == Question(
        "Answer the following multiple choice question. The last line of your response should be of the following format: "
        "'Answer: $LETTER' (without quotes) where LETTER is one of ABCD. Think step by step before answering.\n\n"
        + row["question"].strip()
        + "\n\nA) {}\nB) {}\nC) {}\nD) {}".format(*row["choices"])
    )
    assert (first.max_new_tokens, first.temperature, first.stop) == (2048, 0.0, ())
    assert found["mmlu/accuracy_written"].estimate.value == pytest.approx(2 / 3)
    assert found["mmlu/accuracy_written"].chance == 0.25
    assert found["mmlu/no_answer"].estimate.value == pytest.approx(1 / 3)
    assert not found["mmlu/no_answer"].higher_is_better
    assert len(found) == 2 + 2 * 57


@pytest.mark.parametrize(
    ("suite", "choices"),
    [
        ("arc_easy", 4),
        ("arc_challenge", 4),
        ("openbookqa", 4),
        ("commonsense_qa", 4),
        ("siqa", 2),
        ("logiqa", 4),
        ("aqua", 5),
    ],
)
def test_every_exam_can_be_written(suite: str, choices: int, shared_data: Path) -> None:
    """The right letter is right, in whatever form the rows are."""
    read = SUITES.read({"suite": suite, "answer": "written", "limit": 20})
    items = read.items(subject(shared_data))  # type: ignore[attr-defined]
    gold = {item.question: "ABCDE"[item.gold] for item in items}

    def script(request: Generation) -> str:
        question, listed = last_text(request).split("\n\n", 1)[1].rsplit("\n\nA) ", 1)
        assert len(re.findall(r"^[B-E]\) ", listed, re.MULTILINE)) == choices - 1
        return f"Answer: {gold[question]}"

    assert values(measure(read, script, subject(shared_data))) == {
        f"{suite}/accuracy_written": 1.0,
        f"{suite}/no_answer": 0.0,
    }


def test_gpqa_has_simple_evals_order(tmp_path: Path) -> None:
    """One permutation a row of [right, wrong, wrong, wrong], all drawn from Random(0)."""
    names = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    rows = [{"Question": f"Number {n}?", **{name: f"{name} {n}" for name in names}} for n in range(8)]
    file = write_rows(tmp_path / "gpqa.jsonl", rows)
    generator, letters = random.Random(0), {}
    for row in rows:
        order = generator.sample(range(4), 4)
        listed = "\n".join(f"{letter}) {row[names[number]]}" for letter, number in zip("ABCD", order, strict=True))
        letters[f"{row['Question']}\n\n{listed}"] = "ABCD"[order.index(0)]
    suite = SUITES.read({"suite": "gpqa", "files": [str(file)], "answer": "written"})
    found = values(measure(suite, lambda request: "Answer: " + letters[last_text(request).split("\n\n", 1)[1]]))
    assert found["gpqa/accuracy_written"] == 1.0 and len(set(letters.values())) > 2


def test_several_samples_vote_and_failures_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"question": f"Which is {name}?", "choices": ["x", "y", "z"], "answer": 1} for name in ("one", "two")]
    write_rows(file, rows)
    options = {"suite": "choices", "files": [str(file)], "answer": "written", "samples": 3, "temperature": 0.6}
    given: list[str | Written] = ["Answer: B", "Answer: B", "Answer: A", "?", written("", "error"), "Answer: b"]
    replies = iter(given)
    found = values(measure(SUITES.read(options), lambda request: next(replies)))
    assert found == {
        "choices/accuracy_written": pytest.approx((2 / 3 + 1 / 2) / 2),
        "choices/no_answer": pytest.approx(0.25),
        "choices/pass@2": 1.0,
        "choices/pass^2": pytest.approx(1 / 6),
        "choices/cons@2": 1.0,
        "choices/failed": pytest.approx(1 / 6),
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"answer": "written", "shots": 5}, "shots: only with answer: likely"),
        ({"answer": "written", "scores": ["token"]}, "scores: only with answer: likely"),
        ({"temperature": 0.6}, "temperature: only with answer: written"),
        ({"answer": "written", "samples": 4}, "several samples need a temperature"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        SUITES.read({"suite": "mmlu", **options})


def _letter(text: str) -> str | None:
    number = written_choice(text, 4)
    return None if number is None else "ABCD"[number]


def _by_name(found: Measured) -> dict[str, Metric]:
    return {metric.name: metric for metric in found.metrics}
