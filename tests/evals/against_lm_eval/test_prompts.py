"""Our suites ask what lm-eval's tasks ask, letter by letter, and score the same answers alike: no model is needed for that."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")

from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.prompt import answer_text, plain_text
from ingot.evals.engine.request import Likelihood, Likely, Request
from tests.evals.against_lm_eval.asking import evaluated, subject
from tests.evals.against_lm_eval.peer import load_task, write_task
from tests.evals.against_lm_eval.published import SETS, Published, rows_of
from tests.making.rows import write_rows

ROWS, POOL = 24, 20


def as_texts(request: Request) -> tuple[str, str]:
    assert isinstance(request, Likelihood)
    return plain_text(request.prompt), answer_text(request.prompt, request.continuation)


@pytest.mark.parametrize("published", SETS, ids=str)
def test_same_questions_and_scores(published: Published, shared_data: Path, tmp_path: Path) -> None:
    rows = [published.convert(row) for row in rows_of(shared_data, published.file, ROWS + POOL)]
    asked, pool = rows[:ROWS], rows[ROWS:]
    splits = {published.split: asked} | ({published.pool: pool} if published.pool else {})
    changes = {} if published.split == "validation" else {"validation_split": None, "test_split": "test"}
    task = load_task(write_task(tmp_path, "peer", published.task_file, splits, **changes), published.shots)
    task.build_all_requests()

    options: dict[str, Any] = dict(published.options) | {"files": [str(write_rows(tmp_path / "asked.jsonl", asked))]}
    if published.shots:
        options |= {"shots": published.shots, "shot_files": [str(write_rows(tmp_path / "pool.jsonl", pool))]}
    suite = SUITES.read({"suite": published.suite, **options})
    measuring = suite.measure(subject())
    assert not isinstance(measuring, Measured)
    requests = next(measuring)
    ours = [as_texts(request) for request in requests if isinstance(request, Likelihood)]
    theirs = [instance.args for instance in task.instances]
    if published.suite == "truthfulqa":  # ours asks for both of its lists at once
        ours = ours[: len(theirs)] if "mc1" in published.metrics else ours[-len(theirs) :]
    assert ours == theirs

    generator = random.Random(7)
    answers = {texts: Likely(generator.uniform(-40, -1), generator.random() < 0.3, 3) for texts in theirs}
    known = Likely(-20.0, False, 3)  # of the list that this task has not asked for
    found = evaluated(measuring, [answers.get(as_texts(request), known) for request in requests])
    peers = peer_scores(task, answers)
    for name, peer_name in published.metrics.items():
        metric = found[f"{published.suite}/{name}"]
        assert metric.estimate.value == pytest.approx(
            task.aggregation()[peer_name]([peer[peer_name] for peer in peers]), rel=1e-9
        )
        if peer_name != "perplexity":
            assert list(metric.units.values()) == pytest.approx([float(peer[peer_name]) for peer in peers])


@pytest.mark.parametrize(
    ("suite", "task_file", "shots"),
    [
        ("mmlu", "mmlu/default/mmlu_{}.yaml", 5),
        ("mmlu_cloze", "mmlu/continuation/mmlu_{}.yaml", 0),
        ("mmlu_cloze", "mmlu/continuation/mmlu_{}.yaml", 2),
    ],
)
def test_mmlu(suite: str, task_file: str, shots: int, shared_data: Path, tmp_path: Path) -> None:
    """A limit of ours takes the first questions of all subjects, so subjects are compared one by one."""
    ours = SUITES.read({"suite": suite, "shots": shots}).measure(subject(shared_data, limit=3 * 57))
    assert not isinstance(ours, Measured)
    asked = [as_texts(request) for request in next(ours) if isinstance(request, Likelihood)]
    for name in ("abstract_algebra", "high_school_european_history", "us_foreign_policy"):
        test = [row for row in rows_of(shared_data, "mmlu/test_dev") if row["subject"] == name][:3]
        dev = [row for row in rows_of(shared_data, "mmlu/dev") if row["subject"] == name]
        task = load_task(
            write_task(tmp_path, f"{suite}_{name}", task_file.format(name), {"test": test, "dev": dev}), shots
        )
        task.build_all_requests()
        theirs = [instance.args for instance in task.instances]
        assert len(theirs) == 12
        assert [texts for texts in asked if texts in theirs] == theirs


@pytest.mark.parametrize("file", ["core_icl/arc_easy", "core_icl/piqa", "core_icl/boolq", "core_icl/winogrande"])
def test_rows_of_the_gauntlet_become_the_published_ones(file: str, shared_data: Path, tmp_path: Path) -> None:
    """Both forms of the same rows are asked in the same words."""
    published = next(each for each in SETS if each.file == file)
    rows = rows_of(shared_data, file, 200)
    texts = []
    for name, given in (("own", rows), ("hub", [published.convert(row) for row in rows])):
        files = [str(write_rows(tmp_path / f"{name}.jsonl", given))]
        measuring = SUITES.read({"suite": published.suite, "files": files}).measure(subject())
        assert not isinstance(measuring, Measured)
        texts.append([as_texts(request) for request in next(measuring) if isinstance(request, Likelihood)])
    assert texts[0] == texts[1]


def test_aqua_asks_the_test_rows_only(shared_data: Path) -> None:
    """The file has the dev rows, too: they are what worked examples are taken from."""
    rows = rows_of(shared_data, "aqua/dev_test")
    measuring = SUITES.read({"suite": "aqua", "shots": 1}).measure(subject(shared_data))
    assert not isinstance(measuring, Measured)
    texts = [as_texts(request)[0].rsplit("Question: ", 2)[1:] for request in next(measuring)][::5]
    assert [asked.split("\nA. ")[0] for _, asked in texts] == [
        row["question"].strip() for row in rows if row["split"] == "test"
    ]
    dev = {row["question"].strip() for row in rows if row["split"] == "dev"}
    assert all(example.split("\nA. ")[0] in dev for example, _ in texts)


def test_every_way_to_rank_choices(tmp_path: Path) -> None:
    """Raw, by character, by byte and over the choice's own likelihood, with choices whose bytes and characters differ."""
    generator = random.Random(3)
    words = ["née", "straße", "東京", "a longer answer", "δ", "naïve café", "no", "ÿ" * 9]
    rows: list[dict[str, Any]] = [
        {"question": f"Which one is number {number}?", "choices": generator.sample(words, 4), "answer": number % 4}
        for number in range(40)
    ]
    accuracies = ["acc", "acc_norm", "acc_bytes", "acc_mutual_info"]
    changes = {
        "doc_to_text": "Question: {{question}}\nAnswer:",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "metric_list": [{"metric": name} for name in accuracies],
    }
    task = load_task(write_task(tmp_path, "words", "piqa/piqa.yaml", {"validation": rows, "train": rows}, **changes))
    task.build_all_requests()
    files = [str(write_rows(tmp_path / "rows.jsonl", rows))]
    scores = ["raw", "character", "byte", "unconditional", "token", "gold"]
    suite = SUITES.read({"suite": "choices", "files": files, "scores": scores})
    measuring = suite.measure(subject())
    assert not isinstance(measuring, Measured)
    requests = next(measuring)
    asked = [as_texts(request) for request in requests]
    assert sorted(asked) == sorted(instance.args for instance in task.instances)
    answers = {texts: Likely(generator.uniform(-60, -2), False, generator.randint(1, 6)) for texts in asked}
    found = evaluated(measuring, [answers[texts] for texts in asked])
    peers = peer_scores(task, answers)
    names = ["accuracy", "accuracy_by_character", "accuracy_by_byte", "accuracy_unconditional"]
    for name, peer in zip(names, accuracies, strict=True):
        assert list(found[f"choices/{name}"].units.values()) == [row[peer] for row in peers]
    assert len({metric.estimate.value for metric in found.values()}) > 3  # the ways do differ on these rows
    gold = [answers[f"Question: {row['question']}\nAnswer:", f" {row['choices'][row['answer']]}"] for row in rows]
    bits = [
        -one.logprob / math.log(2) / len(row["choices"][row["answer"]].encode())
        for one, row in zip(gold, rows, strict=True)
    ]
    assert list(found["choices/gold_bits_per_byte"].units.values()) == pytest.approx(bits)
    assert found["choices/accuracy"].chance == pytest.approx(0.25)


def peer_scores(task: Any, answers: dict[tuple[str, str], Likely]) -> list[dict[str, Any]]:
    """What lm-eval makes of these answers, row by row."""
    by_row: dict[int, list[Any]] = {}
    for instance in task.instances:
        instance.resps.append((answers[instance.args].logprob, answers[instance.args].greedy))
    task.apply_filters()
    for instance in task.instances:
        by_row.setdefault(instance.doc_id, []).append(instance.filtered_resps["none"])
    return [task.process_results(row, by_row[number]) for number, row in task.doc_iterator()]
