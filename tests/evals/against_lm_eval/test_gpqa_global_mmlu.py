"""GPQA and Global-MMLU: rows in the published columns are asked as lm-eval's tasks ask them, and wrong columns are refused."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")

from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.request import Likelihood, Likely
from ingot.evals.suites.gpqa import ANSWERS
from ingot.workspace.errors import DataError
from tests.evals.against_lm_eval.asking import evaluated, subject
from tests.evals.against_lm_eval.peer import load_task, write_task
from tests.evals.against_lm_eval.published import Row, rows_of
from tests.evals.against_lm_eval.test_prompts import as_texts, peer_scores
from tests.making.rows import write_rows

ODD_ENDS = ("", " ", "\n", " [title]", "  ", "\t \n")


def gpqa_rows(data: Path) -> list[Row]:
    """Questions of MMLU in the columns of GPQA, with blanks and marks that the harness cleans away."""
    rows = {}
    for number, row in enumerate(rows_of(data, "mmlu/test_dev", 60)):
        right = row["choices"][row["answer"]]
        answers = [right, *(choice for choice in row["choices"] if choice != right)]
        if len(set(answers)) == 4:
            end = ODD_ENDS[number % len(ODD_ENDS)]
            columns = {name: f" {answer}{end}" for name, answer in zip(ANSWERS, answers, strict=True)}
            rows[plain(right)] = {"Question": f" {row['question']}\n", **columns}
    return list(rows.values())[:20]


def plain(answer: str) -> str:
    return "".join(re.findall(r"[\w,+-]", answer.replace("[title]", "")))


@pytest.mark.parametrize(("kind", "shots"), [("zeroshot", 0), ("n_shot", 3)])
def test_gpqa(kind: str, shots: int, shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness shuffles choices with its own generators; here it gets our order, and all else must follow."""
    rows = gpqa_rows(shared_data)
    options = {
        "files": [str(write_rows(tmp_path / "rows.jsonl", rows))],
        "shots": shots,
        "scores": ["raw", "character"],
    }
    suite = SUITES.read({"suite": "gpqa", **options})
    generator = random.Random(0)  # simple-evals: one permutation a row
    orders = {plain(row["Correct Answer"]): generator.sample(range(4), 4) for row in rows}

    def shuffle(choices: list[str], *_: Any) -> None:
        *wrong, correct = choices  # the harness's order
        choices[:] = [[correct, *wrong][number] for number in orders[plain(correct)]]

    monkeypatch.setattr(random, "shuffle", shuffle)
    monkeypatch.setattr(random.Random, "shuffle", lambda self, choices: shuffle(choices))
    file = write_task(tmp_path, f"gpqa_{kind}", f"gpqa/{kind}/gpqa_main_{kind}.yaml", {"train": rows})
    task = load_task(file, shots)
    task.build_all_requests()
    measuring = suite.measure(subject())
    assert not isinstance(measuring, Measured)
    requests = next(measuring)
    ours = [as_texts(request) for request in requests]
    assert ours == [instance.args for instance in task.instances]
    compare_scores(task, measuring, ours, {"gpqa/accuracy": "acc", "gpqa/accuracy_by_character": "acc_norm"})


def test_global_mmlu(shared_data: Path, tmp_path: Path) -> None:
    """Two languages and two subjects in the published columns; each subject of a language is a task of lm-eval."""
    splits = {}
    for split, file in (("test", "mmlu/test_dev"), ("dev", "mmlu/dev")):
        for language in ("de", "sw"):
            rows = [global_row(row, language) for row in rows_of(shared_data, file)]
            splits[language, split] = [row for subject in SUBJECTS for row in rows if row["subject"] == subject]
            folder = tmp_path / "data" / "global_mmlu" / language
            folder.mkdir(parents=True, exist_ok=True)
            write_rows(folder / f"{split}.jsonl", splits[language, split])
    suite = SUITES.read({"suite": "global_mmlu", "languages": ["de", "sw"], "shots": 3})
    measuring = suite.measure(subject(tmp_path / "data", limit=24))
    assert not isinstance(measuring, Measured)
    requests = next(measuring)
    ours = [as_texts(request) for request in requests if isinstance(request, Likelihood)]
    found, peers = [], []
    for language in ("de", "sw"):
        for name in SUBJECTS:
            test, dev = ([r for r in splits[language, split] if r["subject"] == name] for split in ("test", "dev"))
            task_file = f"global_mmlu/full/{language}/global_mmlu_full_{language}_{name}.yaml"
            task = load_task(write_task(tmp_path, f"{language}_{name}", task_file, {"test": test[:6], "dev": dev}), 3)
            task.build_all_requests()
            theirs = [instance.args for instance in task.instances]
            assert [texts for texts in ours if texts in theirs] == theirs
            found += theirs
            peers.append(task)
    assert sorted(found) == sorted(ours)
    generator = random.Random(5)
    answers = {texts: Likely(generator.uniform(-9, -1), False, 1) for texts in ours}
    metrics = evaluated(measuring, [answers[texts] for texts in ours])
    by_language = {
        language: [row["acc"] for task in peers if task.config.task.startswith(language) for row in peer_scores(task, answers)]
        for language in ("de", "sw")
    }  # fmt: skip
    for language, scores in by_language.items():
        assert metrics[f"global_mmlu/accuracy/{language}"].estimate.value == pytest.approx(sum(scores) / len(scores))
    assert metrics["global_mmlu/accuracy"].estimate.value == pytest.approx(sum(map(sum, by_language.values())) / 24)
    assert len(set(metrics["global_mmlu/accuracy"].clusters.values())) == 12  # translations are one cluster


SUBJECTS = ("anatomy", "world_religions")


def global_row(row: Row, language: str) -> Row:
    texts = dict(zip(("option_a", "option_b", "option_c", "option_d"), row["choices"], strict=True))
    question = f" {language}: {row['question']} "
    answer = "ABCD"[row["answer"]]
    return {"sample_id": row["question"], "subject": row["subject"], "question": question, **texts, "answer": answer}


def compare_scores(task: Any, measuring: Any, asked: Sequence[tuple[str, str]], metrics: dict[str, str]) -> None:
    """The same answers give the same scores, row by row."""
    generator = random.Random(3)
    answers = {texts: Likely(generator.uniform(-40, -1), False, 3) for texts in asked}
    found = evaluated(measuring, [answers[texts] for texts in asked])
    peers = peer_scores(task, answers)
    for ours, theirs in metrics.items():
        assert list(found[ours].units.values()) == [row[theirs] for row in peers]


@pytest.mark.parametrize(
    ("suite", "row", "problem"),
    [
        ("gpqa", {"question": "?", "Correct Answer": "a"}, "'Incorrect Answer 1' is missing"),
        ("gpqa", {"question": "?", **dict.fromkeys(ANSWERS, "a")}, "'Question' is missing"),
        ("global_mmlu", {"question": "?", "choices": ["a", "b"], "answer": "A"}, "'option_a' is missing"),
        ("global_mmlu", {"question": "?", **{f"option_{x}": x for x in "abcd"}, "answer": "E"}, "right choice is 'E'"),
        ("aqua", {"question": "?", "options": ["A)1", "B)2"], "correct": "C"}, "right choice is 'C'"),
        ("aqua", {"question": "?", "correct": "C"}, "'options' is missing"),
        ("arc_easy", {"question": "?", "choices": ["a", "b"], "answerKey": "A"}, "'choices' is list"),
        ("openbookqa", {"question_stem": "?", "choices": {"text": ["a"], "label": ["A"]}}, "'answerKey' is missing"),
        (
            "commonsense_qa",
            {"question": "?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"},
            "right choice is 'C', and 2 choices have the labels A, B",
        ),
        ("popqa", {"question": "?"}, "'possible_answers' is missing"),
        ("popqa", {"question": "?", "possible_answers": "no list"}, "'possible_answers' is not JSON"),
        ("icl", {"question": "?", "answer": "a"}, "is of no known shape"),
        ("icl", {"query": 3, "choices": ["a", "b"], "gold": 0}, "'query' is int"),
        ("icl", {"query": "?", "choices": ["a", "b"], "gold": 2}, "right choice is 2"),
    ],
)
def test_wrong_columns_are_refused(suite: str, row: Row, problem: str, tmp_path: Path) -> None:
    files = [str(write_rows(tmp_path / "rows.jsonl", [row]))]
    measuring = SUITES.read({"suite": suite, "files": files}).measure(subject())
    assert not isinstance(measuring, Measured)
    with pytest.raises(DataError, match=problem) as error:
        next(measuring)
    assert "rows.jsonl:1" in str(error.value)
