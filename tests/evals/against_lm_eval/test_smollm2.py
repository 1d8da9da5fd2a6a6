"""SmolLM2-135M-Instruct, the real one: lm-eval's transformers backend and our suites on the same rows.

Twelve tasks: letters, cloze, endings, several contexts, single continuations, whole texts, written answers. Likelihoods agree
to 1e-3 question by question, and scores are equal. INGOT_LM_EVAL_LOG names a file for the table that docs/log.md has.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")

from ingot.checkpoints.convert import export_model
from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.request import Generation, Likelihood, Passage
from tests.checkpoints.gguf.conftest import smollm2  # noqa: F401  # the fixture of the GGUF file
from tests.evals.against_lm_eval import published
from tests.evals.against_lm_eval.models import Harness, Ours
from tests.evals.against_lm_eval.peer import load_task, write_task
from tests.evals.against_lm_eval.published import rows_of
from tests.making.rows import write_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
ROWS = 20
CHOICES = ("arc_easy", "arc_challenge", "hellaswag", "piqa", "boolq", "winogrande", "lambada")


@pytest.fixture(scope="module")
def folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """The GGUF file as a Hugging Face folder in float32."""
    folder = tmp_path_factory.mktemp("smollm2") / "model"
    export_model(smollm2, folder, dtype=torch.float32)
    return folder


@pytest.fixture(scope="module")
def harness(folder: Path) -> Harness:
    return Harness(folder, 2048)


@pytest.fixture(scope="module")
def ours(folder: Path) -> Ours:
    return Ours(folder, 2048)


def note(task: str, rows: int, difference: float, scores: Mapping[str, Any]) -> None:
    if "INGOT_LM_EVAL_LOG" in os.environ:
        with Path(os.environ["INGOT_LM_EVAL_LOG"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"task": task, "rows": rows, "difference": difference, "scores": scores}) + "\n")


def compare(
    name: str, harness: Harness, ours: Ours, task: Any, options: dict[str, Any], metrics: Mapping[str, str]
) -> None:
    """Likelihoods question by question, and the scores."""
    task.build_all_requests()
    theirs = harness.answer(task)
    subject = ours.subject()
    measuring = SUITES.read(options).measure(subject)
    assert not isinstance(measuring, Measured)
    requests = list(next(measuring))
    assert all(isinstance(request, Likelihood) for request in requests)
    answers = ours.answer(requests, subject)
    difference = max(abs(answer.logprob - value) for answer, (value, _) in zip(answers, theirs, strict=True))
    assert difference < 1e-3
    assert [answer.greedy for answer in answers] == [greedy for _, greedy in theirs]
    with pytest.raises(StopIteration) as end:
        measuring.send(answers)
    found = {metric.name: metric.estimate.value for metric in end.value.value.metrics}
    peers = peer_rows(task)
    scores = {}
    for ours_name, peer_name in metrics.items():
        peer = task.aggregation()[peer_name]([row[peer_name] for row in peers])
        assert found[f"{options['suite']}/{ours_name}"] == pytest.approx(
            peer, rel=1e-4 if "perplexity" in peer_name else 1e-9
        )
        scores[ours_name] = [found[f"{options['suite']}/{ours_name}"], peer]
    note(name, len(peers), difference, scores)


def peer_rows(task: Any) -> list[dict[str, Any]]:
    task.apply_filters()
    by_row: dict[int, list[Any]] = {}
    for instance in task.instances:
        by_row.setdefault(instance.doc_id, []).append(next(iter(instance.filtered_resps.values())))
    return [task.process_results(row, by_row[number]) for number, row in task.doc_iterator()]


@pytest.mark.parametrize("suite", CHOICES)
def test_choices(suite: str, harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path) -> None:
    each = next(one for one in published.SETS if one.suite == suite and (one.shots is None or suite == "arc_easy"))
    rows = [each.convert(row) for row in rows_of(shared_data, each.file, ROWS)]
    splits = {each.split: rows} | ({each.pool: rows} if each.pool else {})
    changes = {} if each.split == "validation" else {"validation_split": None}
    task = load_task(write_task(tmp_path, suite, each.task_file, splits, **changes))
    files = [str(write_rows(tmp_path / "asked.jsonl", rows))]
    compare(suite, harness, ours, task, {"suite": suite, "files": files}, each.metrics)


@pytest.mark.parametrize(
    ("suite", "shots", "task_file"),
    [("mmlu", 5, "mmlu/default/mmlu_{}.yaml"), ("mmlu_cloze", 0, "mmlu/continuation/mmlu_{}.yaml")],
)
def test_mmlu(
    suite: str, shots: int, task_file: str, harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path
) -> None:
    subject = "astronomy"
    test = [row for row in rows_of(shared_data, "mmlu/test_dev") if row["subject"] == subject][:ROWS]
    dev = [row for row in rows_of(shared_data, "mmlu/dev") if row["subject"] == subject]
    task = load_task(write_task(tmp_path, suite, task_file.format(subject), {"test": test, "dev": dev}), shots)
    files = {"files": [str(tmp_path / f"{suite}_test.jsonl")], "shot_files": [str(tmp_path / f"{suite}_dev.jsonl")]}
    metrics = {"accuracy": "acc"} if shots else {"accuracy": "acc", "accuracy_by_character": "acc_norm"}
    compare(suite, harness, ours, task, {"suite": suite, "shots": shots, **files}, metrics)


def test_bits_per_byte(harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path) -> None:
    """Pages of WikiText-2, one of them longer than the model's 2,048 tokens."""
    with gzip.open(shared_data / "wikitext2/test.txt.gz", "rt", encoding="utf-8") as file:
        whole = file.read()
    texts = [whole[:12_000], *(whole[start : start + 3000] for start in range(20_000, 80_000, 15_000))]
    changes = {"training_split": None, "validation_split": None, "doc_to_target": "page", "process_results": None}
    rows = [{"page": text} for text in texts]
    task = load_task(write_task(tmp_path, "pages", "wikitext/wikitext.yaml", {"test": rows}, **changes))
    task.build_all_requests()
    theirs = harness.answer(task)
    answers = ours.answer([Passage(text) for text in texts], ours.subject())
    # torch's log_softmax in float32 is 8e-6 too high a token at this vocabulary: the sum in float64 is nearer to ours
    differences = [abs(answer.logprob - value) / answer.tokens for answer, value in zip(answers, theirs, strict=True)]
    assert max(differences) < 1.5e-5
    written = write_rows(tmp_path / "texts.jsonl", [{"text": text} for text in texts])
    (found,) = ours.measure([SUITES.read({"suite": "text_bits", "domains": {"pages": [str(written)]}})], ours.subject())
    peer = task.aggregation()["bits_per_byte"]([row["bits_per_byte"] for row in peer_rows(task)])
    assert found.metrics[0].estimate.value == pytest.approx(peer, rel=1e-5)
    note("wikitext", len(texts), max(differences), {"bits_per_byte": [found.metrics[0].estimate.value, peer]})


@pytest.mark.parametrize("name", ["gsm8k", "bbh"])
def test_written_answers(name: str, harness: Harness, ours: Ours, shared_data: Path, tmp_path: Path) -> None:
    """Greedy texts are equal, so scores are."""
    if name == "gsm8k":
        splits = {"train": rows_of(shared_data, "gsm8k/train"), "test": rows_of(shared_data, "gsm8k/test_dev", ROWS)}
        task_file, shots, tokens = "gsm8k/gsm8k.yaml", 5, 96
    else:
        rows = [row for row in rows_of(shared_data, "bbh/bbh") if row["task"] == "navigate"]
        splits = {"test": rows[:ROWS]}
        task_file, shots, tokens = "bbh/cot_fewshot/navigate.yaml", 3, 96
    file = write_task(tmp_path, f"{name}_here", task_file, splits)
    task = load_task(file, shots)
    task.config.generation_kwargs["max_gen_toks"] = tokens
    task.build_all_requests()
    theirs = harness.answer(task)
    subject = ours.subject(shared_data, limit=ROWS)
    if name == "bbh":
        measuring = SUITES.read({"suite": "bbh", "tasks": ["navigate"], "max_new_tokens": tokens}).measure(subject)
    else:
        options = {"suite": "lm_eval", "task": "gsm8k_here", "include_path": str(tmp_path), "shots": shots}
        measuring = SUITES.read(options).measure(subject)
    assert not isinstance(measuring, Measured)
    requests = [request for request in next(measuring) if isinstance(request, Generation)]
    if name == "gsm8k":
        requests = [Generation(each.prompt, tokens, each.stop) for each in requests]
    answers = ours.answer(requests, subject)
    equal = sum(answer.text == text for answer, text in zip(answers, theirs, strict=True))
    with pytest.raises(StopIteration) as end:
        measuring.send(answers)
    found = {metric.name: metric.estimate.value for metric in end.value.value.metrics}
    task.apply_filters()
    scores = {}
    for filter_name in task.instances[0].filtered_resps:
        by_row = {each.doc_id: each.filtered_resps[filter_name] for each in task.instances}
        rows = [task.process_results(row, [by_row[number]]) for number, row in task.doc_iterator()]
        peer = sum(row["exact_match"] for row in rows) / len(rows)
        ours_name = "bbh/harness" if name == "bbh" else f"lm_eval/gsm8k_here/exact_match/{filter_name}"
        assert found[ours_name] == pytest.approx(peer)
        scores[filter_name] = [found[ours_name], peer]
    note(name, len(theirs), equal, scores)
    assert equal == len(theirs)
