"""What becomes of lm-eval's tasks here: units of any aggregation, groups, conversations, and errors that say what to do."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")

import numpy as np
from lm_eval.api.metrics import matthews_corrcoef, perplexity
from scipy.stats import bootstrap

from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.request import Conversation, Generation, Likelihood, Likely, Request
from ingot.evals.scores.statistics import estimate
from ingot.evals.suites.lambada import perplexity_units
from ingot.evals.suites.lm_eval import LmEval, group_metrics
from ingot.evals.suites.lm_eval.harness import Loaded, TaskScores, jackknife_units, load_tasks
from ingot.workspace.errors import ArtifactError, RecipeError
from tests.evals.against_lm_eval.asking import evaluated, subject
from tests.evals.against_lm_eval.peer import write_task
from tests.evals.against_lm_eval.published import arc, rows_of


def test_units_of_any_aggregation() -> None:
    """Their mean is lm-eval's number, and their standard error near that of a bootstrap."""
    generator = random.Random(1)
    labels = [generator.randint(0, 1) for _ in range(90)]
    pairs = [(label, label if generator.random() < 0.7 else 1 - label) for label in labels]
    logprobs = [generator.gauss(-2, 0.6) for _ in range(90)]
    for values, aggregate in ((pairs, matthews_corrcoef), (logprobs, perplexity)):
        units = jackknife_units({str(number): value for number, value in enumerate(values)}, aggregate)
        assert estimate(list(units.values())).value == pytest.approx(aggregate(values))
    peer = bootstrap(
        (logprobs,), lambda rows, axis: np.exp(-np.mean(rows, axis=axis)), n_resamples=4000, random_state=0
    )
    in_one_step = perplexity_units(logprobs)  # what the suite lambada does
    for found in (estimate(list(units.values())), estimate(in_one_step)):
        assert found.value == pytest.approx(perplexity(logprobs))
        assert found.standard_error == pytest.approx(peer.standard_error, rel=0.08)


def test_many_rows_are_left_out_in_groups() -> None:
    values = {str(number): float(number % 7) for number in range(350)}
    units = jackknife_units(values, lambda rows: math.fsum(rows) / len(rows))
    assert len(units) == 100
    assert estimate(list(units.values())).value == pytest.approx(math.fsum(values.values()) / 350)


def test_groups_weigh_rows_or_tasks() -> None:
    def scored(rows: list[float]) -> list[TaskScores]:
        return [TaskScores("acc", {str(n): value for n, value in enumerate(rows)}, lambda all: 0.0, True, plain=True)]

    tasks = {"small": scored([1.0, 0.0]), "large": scored([1.0] * 6)}
    for by_size, expected in ((True, 7 / 8), (False, 0.75)):
        loaded = Loaded({}, {"both": (["small", "large"], {"acc": by_size})})
        (metric,) = group_metrics(loaded, tasks)
        assert metric.name == "lm_eval/both/acc"
        assert metric.estimate.value == pytest.approx(expected)


def test_chat_models_get_conversations(shared_data: Path, tmp_path: Path) -> None:
    """Worked examples become turns, a choice stands without its delimiter, and the beginning of an answer is given."""
    rows = [arc(row) for row in rows_of(shared_data, "core_icl/arc_easy", 12)]
    changes = {"validation_split": None, "num_fewshot": 2, "description": "Answer.", "gen_prefix": "It is"}
    write_task(tmp_path, "arc_here", "arc/arc_easy.yaml", {"test": rows[:4], "train": rows[4:]}, **changes)
    suite = SUITES.read({"suite": "lm_eval", "task": "arc_here", "include_path": str(tmp_path)})
    measuring = suite.measure(subject(form="chat"))
    assert not isinstance(measuring, Measured)
    requests = next(measuring)
    first = requests[0]
    assert isinstance(first, Likelihood) and isinstance(first.prompt, Conversation)
    assert [message.role for message in first.prompt.messages] == ["system", *["user", "assistant"] * 2, "user"]
    assert first.prompt.messages[-1].content == f"Question: {rows[0]['question']}\nAnswer:"
    assert (first.prompt.start, first.continuation) == ("It is", f" {rows[0]['choices']['text'][0]}")
    gold = [
        text == row["choices"]["text"]["ABCD".index(row["answerKey"])]
        for row in rows[:4]
        for text in row["choices"]["text"]
    ]
    found = evaluated(measuring, [Likely(-1.0 if right else -99.0, False, 2) for right in gold])
    assert found["lm_eval/arc_here/acc"].estimate.value == 1.0


def test_generation_options(shared_data: Path, tmp_path: Path) -> None:
    rows = rows_of(shared_data, "gsm8k/test_dev", 2)
    changes = {
        "num_fewshot": 0,
        "repeats": 3,
        "generation_kwargs": {"until": "END", "do_sample": True, "temperature": 0.7},
    }
    write_task(tmp_path, "gsm_here", "gsm8k/gsm8k.yaml", {"test": rows, "train": rows}, **changes)
    suite = SUITES.read({"suite": "lm_eval", "task": "gsm_here", "include_path": str(tmp_path)})
    measuring = suite.measure(subject())
    assert not isinstance(measuring, Measured)
    requests = [request for request in next(measuring) if isinstance(request, Generation)]
    assert [request.sample for request in requests] == [0, 1, 2, 0, 1, 2]
    assert {(request.temperature, request.stop, request.max_new_tokens) for request in requests} == {
        (0.7, ("END",), 256)
    }


def test_a_subset_is_asked_as_it_is_among_all(shared_data: Path, tmp_path: Path) -> None:
    """The same rows, with the worked examples that they have when all are asked; and a limit counts in the subset."""
    rows = [arc(row) for row in rows_of(shared_data, "core_icl/arc_easy", 30)]
    splits = {"test": rows[:18], "train": rows[18:]}
    write_task(tmp_path, "arc_here", "arc/arc_easy.yaml", splits, validation_split=None, num_fewshot=2)
    file = tmp_path / "subset.json"
    file.write_text(json.dumps({"rows": [2, 3, 11, 17], "of": 18}))
    options = {"suite": "lm_eval", "task": "arc_here", "include_path": str(tmp_path)}
    asked: dict[str, list[Request]] = {}
    found = {}
    for name, limit in (("whole", None), ("some", None), ("two", 2)):
        more = {} if name == "whole" else {"subset": str(file)}
        measuring = SUITES.read({**options, **more}).measure(subject(limit=limit))
        assert not isinstance(measuring, Measured)
        asked[name] = list(next(measuring))
        answers = [Likely(-float(len(request.continuation) % 7), False, 2) for request in asked[name]]  # type: ignore[union-attr]
        found[name] = evaluated(measuring, answers)["lm_eval/arc_here/acc"].units
    sizes = [len(row["choices"]["text"]) for row in rows[:18]]
    starts = [sum(sizes[:number]) for number in range(18)]
    by_row = [asked["whole"][start : start + size] for start, size in zip(starts, sizes, strict=True)]
    assert asked["some"] == [*by_row[2], *by_row[3], *by_row[11], *by_row[17]]
    assert asked["two"] == [*by_row[2], *by_row[3]]
    whole = list(found["whole"].items())
    assert list(found["some"].items()) == [whole[row] for row in (2, 3, 11, 17)]
    assert list(found["two"].items()) == [whole[row] for row in (2, 3)]
    suite = SUITES.read({**options, "subset": str(file)})
    before = suite.outside()
    file.write_text(json.dumps({"rows": [2], "of": 17}))
    assert suite.outside() != before
    measuring = suite.measure(subject())
    assert not isinstance(measuring, Measured)
    with pytest.raises(ArtifactError, match="among 17 questions, and the suite has 18"):
        next(measuring)


def test_a_subset_of_several_tasks_is_refused(shared_data: Path, tmp_path: Path) -> None:
    rows = [arc(row) for row in rows_of(shared_data, "core_icl/arc_easy", 4)]
    for name in ("one", "two"):
        write_task(tmp_path, name, "arc/arc_easy.yaml", {"test": rows, "train": rows}, validation_split=None)
    suite = SUITES.read({"suite": "lm_eval", "task": "both", "subset": str(tmp_path / "subset.json")})
    assert isinstance(suite, LmEval)
    tasks = {name: load_tasks(name, str(tmp_path), None).tasks[name] for name in ("one", "two")}
    with pytest.raises(RecipeError, match="a subset is of one task, and both is 2: one, two"):
        suite._chosen(Loaded(tasks), None)


def test_tasks_that_run_programs_are_refused(shared_data: Path, tmp_path: Path) -> None:
    rows = rows_of(shared_data, "gsm8k/test_dev", 2)
    write_task(tmp_path, "programs", "gsm8k/gsm8k.yaml", {"test": rows, "train": rows}, unsafe_code=True)
    with pytest.raises(RecipeError, match="runs what the model writes"):
        load_tasks("programs", str(tmp_path), None)
