"""GSM8K: prompts and the two readings of the LM evaluation harness, by the harness itself; and what k answers say."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from ingot.evals.bases.word_problems import last_number, marked_number, same_number
from ingot.evals.engine.prompt import as_text
from ingot.evals.engine.request import Generation, Question
from ingot.evals.suites.gsm8k import Gsm8k
from ingot.workspace.errors import CheckFailed, DataError
from tests.evals.suites.asking import measure, subject, units, values, written
from tests.making.rows import read_rows

ODD = [
    "",
    "...",
    "$",
    "-",
    "#### ",
    "####5",
    "#### 5",
    "#### -1,234.50",
    "#### 5. #### 6",
    "so 5...",
    "-$5.",
    "1.",
    "7 eggs.",
]
ODD += [
    "#### 72\nQ",
    "The answer is 1,000",
    "1,0,0",
    "#### 1,000.",
    "#### 7$",
    "no number",
    "3 - 4",
    "٣",
    "5%",
    "$.50",
    "--5",
]


def test_both_readings_are_the_harness_s(shared_data: Path) -> None:
    """1,000 texts: solutions, solutions cut anywhere, mixed with odd endings, against filters and metric of lm-eval."""
    filters = pytest.importorskip("lm_eval.filters.extraction", reason="needs lm-eval (pip install 'ingot[evals]')")
    metrics = pytest.importorskip("lm_eval.api.metrics", reason="needs lm-eval (pip install 'ingot[evals]')")
    strict = filters.RegexFilter(r"#### (\-?[0-9\.\,]+)")
    flexible = filters.RegexFilter(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1)
    ignored = [",", r"\$", r"(?s).*#### ", r"\.$"]
    rng, solutions = random.Random(0), [row["answer"] for row in read_rows(shared_data / "gsm8k" / "test_dev.jsonl.gz")]
    compared = 0
    for number in range(1000):
        solution = rng.choice(solutions)
        text = rng.choice([solution, solution[: rng.randrange(len(solution))], ""]) + rng.choice(["", " ", *ODD])
        expected = rng.choice([solution, rng.choice(solutions)])
        for published, ours in ((strict, marked_number), (flexible, last_number)):
            (theirs,), *_ = published.apply([[text]], [{}])
            assert ours(text) == theirs, (number, text)
            match = metrics.exact_match_hf_evaluate(
                predictions=[theirs], references=[expected], regexes_to_ignore=ignored, ignore_case=True
            )
            compared += int(match["exact_match"])
            assert same_number(ours(text), expected) == bool(match["exact_match"]), (number, text, expected)
    assert compared > 150  # texts that are right are among them


def test_prompts_are_the_harness_s(shared_data: Path) -> None:
    """Worked examples drawn anew for each question by Random(1234), as the harness's sampler does."""
    samplers = pytest.importorskip("lm_eval.api.samplers", reason="needs lm-eval (pip install 'ingot[evals]')")
    train, test = (read_rows(shared_data / "gsm8k" / f"{name}.jsonl.gz") for name in ("train", "test_dev"))
    sampler = samplers.ContextSampler(train, rnd=1234)
    items = Gsm8k(limit=7).items(subject(shared_data))
    for item, row in zip(items, test, strict=False):
        shots = "".join(f"Question: {one['question']}\nAnswer: {one['answer']}\n\n" for one in sampler.sample(5))
        assert isinstance(item.prompt, Question)
        assert as_text(item.prompt) == f"{shots}Question: {row['question']}\nAnswer:"


def test_solutions_are_right_and_others_are_not(shared_data: Path) -> None:
    rows = read_rows(shared_data / "gsm8k" / "test_dev.jsonl.gz")[:60]
    solutions = {f"Question: {row['question']}\nAnswer:": row["answer"] for row in rows}
    suite, about = Gsm8k(limit=60), subject(shared_data)
    right = measure(suite, lambda request: f" {solutions[request.prompt.text]}", about)  # type: ignore[union-attr]
    assert values(right) == {"gsm8k/verified": 1, "gsm8k/flexible": 1, "gsm8k/strict": 1}
    assert [row.correct for row in right.samples] == [True] * 12
    wrong = measure(suite, lambda request: " #### 123456", about)
    assert values(wrong) == {"gsm8k/verified": 0, "gsm8k/flexible": 0, "gsm8k/strict": 0}
    boxed = measure(Gsm8k(limit=60, shots=0), lambda request: r"So \boxed{18} dollars remain after 3 days.", about)
    verified, flexible = (list(units(boxed)[f"gsm8k/{name}"].values()) for name in ("verified", "flexible"))
    assert verified[0] == 1 and flexible[0] == 0  # the answer to the first row is 18, the last number here is 3


def write_rows(folder: Path, answers: dict[str, str]) -> tuple[str, ...]:
    file = folder / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"question": q, "answer": f"#### {a}"}) for q, a in answers.items()))
    return (str(file),)


def test_what_several_answers_say(tmp_path: Path) -> None:
    """Counts by hand: a is right 3 of 4, b 1 of 4 and outvoted, c once and tied with what came before it."""
    files = write_rows(tmp_path, {"a": "1", "b": "2", "c": "3"})
    said = {"a": ["#### 1", "#### 1.0", "9", "1"], "b": ["#### 7", "2", "#### 7", "none"], "c": ["3", "4", "", "?"]}

    def script(request: Generation) -> str:
        assert isinstance(request.prompt, Question)
        return said[request.prompt.text[0]][request.sample]

    suite = Gsm8k(files=files, shots=0, samples=4, temperature=1.0)
    found = values(measure(suite, script))
    assert found["gsm8k/verified"] == pytest.approx((3 / 4 + 1 / 4 + 1 / 4) / 3)
    assert found["gsm8k/pass@4"] == 1 and found["gsm8k/pass^4"] == 0
    assert found["gsm8k/cons@4"] == pytest.approx(2 / 3)


def test_an_answer_that_nobody_gave_is_not_wrong(tmp_path: Path) -> None:
    files = write_rows(tmp_path, {"a": "1", "b": "2"})
    script = lambda request: written("", "error") if request.prompt.text[0] == "a" else written("2", "length")  # noqa: E731
    found = values(measure(Gsm8k(files=files, shots=0), script))
    assert found["gsm8k/verified"] == 1 and found["gsm8k/failed"] == 0.5 and found["gsm8k/cut"] == 0.5
    with pytest.raises(CheckFailed, match="gave no answer: error"):
        measure(Gsm8k(files=files, shots=0), lambda request: written("", "error"))


def test_bad_rows_and_options(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "How many?", "answer": "5"}\n')
    with pytest.raises(DataError, match="no line ####"):
        Gsm8k(files=(str(file),), shots=0).items(subject())
    file.write_text('{"question": "How many?", "answer": "#### 5"}\n')
    with pytest.raises(DataError, match="5 worked examples are asked for, and there are 1 rows"):
        Gsm8k(files=(str(file),), shot_files=(str(file),)).items(subject())
    with pytest.raises(ValueError, match="temperature above 0"):
        Gsm8k(samples=4)
