"""A tiny random model answers alike through lm-eval's transformers backend and through our engine, for every type of request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")

from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.request import Likelihood, Passage
from tests.evals.against_lm_eval.models import Harness, Ours, write_tiny
from tests.evals.against_lm_eval.peer import load_task, write_task
from tests.evals.against_lm_eval.published import rows_of, winogrande
from tests.making.rows import write_rows

LENGTH = 512


@pytest.fixture(scope="module")
def folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"), shared_data)


@pytest.fixture(scope="module")
def harness(folder: Path) -> Harness:
    return Harness(folder, LENGTH)


@pytest.fixture(scope="module")
def ours(folder: Path) -> Ours:
    return Ours(folder, LENGTH)


def test_choices_also_where_the_prompt_is_cut(harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path) -> None:
    """Five worked examples of history are longer than the model's 512 tokens: both cut them from the left."""
    name = "high_school_european_history"
    test = [row for row in rows_of(shared_data, "mmlu/test_dev") if row["subject"] == name][:3]
    dev = [row for row in rows_of(shared_data, "mmlu/dev") if row["subject"] == name]
    task = load_task(write_task(tmp_path, "history", f"mmlu/default/mmlu_{name}.yaml", {"test": test, "dev": dev}), 5)
    task.build_all_requests()
    files = {
        "files": [str(write_rows(tmp_path / "test.jsonl", test))],
        "shot_files": [str(tmp_path / "history_dev.jsonl")],
    }
    compare(harness, ours, task, {"suite": "mmlu", **files})


def test_several_contexts(harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path) -> None:
    rows = [winogrande(row) for row in rows_of(shared_data, "core_icl/winogrande", 8)]
    splits = {"validation": rows, "train": rows}
    task = load_task(write_task(tmp_path, "winogrande_here", "winogrande/default.yaml", splits))
    task.build_all_requests()
    files = [str(write_rows(tmp_path / "rows.jsonl", rows))]
    compare(harness, ours, task, {"suite": "winogrande", "files": files})


def compare(harness: Harness, ours: Ours, task: Any, options: dict[str, Any]) -> None:
    subject = ours.subject()
    measuring = SUITES.read(options).measure(subject)
    assert not isinstance(measuring, Measured)
    requests = [request for request in next(measuring) if isinstance(request, Likelihood)]
    theirs = harness.answer(task)
    found = ours.answer(requests, subject)
    assert [answer.logprob for answer in found] == pytest.approx([value for value, _ in theirs], abs=1e-3)
    assert [answer.greedy for answer in found] == [greedy for _, greedy in theirs]


def test_whole_texts_in_windows(harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path) -> None:
    """Rolling likelihood: texts shorter and longer than the model's length, against bits per byte of lm-eval's wikitext."""
    texts = [
        row["text"][:size]
        for row, size in zip(rows_of(shared_data, "openstax/modules", 3), (900, 3000, 5000), strict=True)
    ]
    page = {"doc_to_target": "page", "process_results": None, "should_decontaminate": False}
    rows = {"test": [{"page": text} for text in texts]}
    changes = {"training_split": None, "validation_split": None, **page}
    task = load_task(write_task(tmp_path, "pages", "wikitext/wikitext.yaml", rows, **changes))
    task.build_all_requests()
    theirs = harness.answer(task)
    subject = ours.subject()
    found = ours.answer([Passage(text) for text in texts], subject)
    assert [answer.logprob for answer in found] == pytest.approx(theirs, abs=1e-2, rel=1e-6)

    file = write_rows(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
    (measured,) = ours.measure([SUITES.read({"suite": "text_bits", "domains": {"books": [str(file)]}})], subject)
    (metric,) = measured.metrics
    task.apply_filters()
    pairs = [
        task.process_results(row, [value])["bits_per_byte"] for row, value in zip(rows["test"], theirs, strict=True)
    ]
    assert metric.estimate.value == pytest.approx(task.aggregation()["bits_per_byte"](pairs), rel=1e-6)


def test_greedy_texts_with_stops(harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path) -> None:
    """A whole task of lm-eval through the suite lm_eval: its few-shot prompts, stops, filters and metrics."""
    splits = {"train": rows_of(shared_data, "gsm8k/train", 20), "test": rows_of(shared_data, "gsm8k/test_dev", 4)}
    changes = {"generation_kwargs": {"until": ["Question:", "e", "<|im_end|>"], "max_gen_toks": 24, "do_sample": False}}
    file = write_task(tmp_path, "gsm8k_here", "gsm8k/gsm8k.yaml", splits, **changes)
    task = load_task(file, 2)
    task.build_all_requests()
    theirs = harness.answer(task)
    suite = SUITES.read({"suite": "lm_eval", "task": "gsm8k_here", "include_path": str(tmp_path), "shots": 2})
    (measured,) = ours.measure([suite], ours.subject())
    assert [sample.completion for sample in measured.samples] == theirs
    assert [sample.prompt for sample in measured.samples] == [instance.args[0] for instance in task.instances]
    assert {metric.name for metric in measured.metrics} == {
        "lm_eval/gsm8k_here/exact_match/strict-match",
        "lm_eval/gsm8k_here/exact_match/flexible-extract",
    }
