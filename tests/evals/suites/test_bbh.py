"""BIG-Bench Hard: prompts and answers as lm-eval has them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ingot.evals.bases.suite import Measured
from ingot.evals.bases.suites import SUITES
from ingot.evals.engine.prompt import plain_text
from ingot.evals.engine.request import Generation, Written
from ingot.evals.suites.bbh import flexible_answer, harness_answer
from tests.evals.against_lm_eval.asking import evaluated, subject

lm_eval = pytest.importorskip("lm_eval", reason="needs lm-eval (pip install 'ingot[evals]')")
FILES = Path(lm_eval.__file__).parent / "tasks/bbh/cot_fewshot"
TEXTS = [
    "So the answer is (A).",
    "So the answer is (A)",  # the harness loses the bracket
    "the answer is Yes. Or the answer is No.",
    "the answer is 42\nthe answer is 43.",
    "The answer is 7.",
    "the answer is ",
    "nothing",
    "",
    "the answer is } ] >.",
    "the answer is True. Q: next",
]


def test_prompts_of_all_tasks(shared_data: Path) -> None:
    measuring = SUITES.read("bbh").measure(subject(shared_data, limit=27))
    assert not isinstance(measuring, Measured)
    requests = next(measuring)
    texts = [plain_text(request.prompt) for request in requests if isinstance(request, Generation)]
    tasks = {
        file.stem: yaml.safe_load(file.read_text()) for file in FILES.glob("*.yaml") if not file.stem.startswith("_")
    }
    heads = set()
    for task in tasks.values():
        shots = "".join(
            task["doc_to_text"].replace("{{input}}", shot["input"]) + shot["target"] + "\n\n"
            for shot in task["fewshot_config"]["samples"]
        )
        heads.add(task["description"] + shots)
    assert len(texts) == len(tasks) == 27
    assert {text[: text.rindex("\n\nQ: ") + 2] for text in texts} == heads
    assert all(text.endswith("\nA: Let's think step by step.\n") for text in texts)


def test_answers_as_the_harness_reads_them() -> None:
    from lm_eval.filters.extraction import RegexFilter

    template = yaml.safe_load((FILES / "_cot_fewshot_template_yaml").read_text())
    pattern = template["filter_list"][0]["filter"][0]["regex_pattern"]
    theirs = RegexFilter(regex_pattern=pattern).apply([[text] for text in TEXTS], [{}] * len(TEXTS))
    assert [harness_answer(text) for text in TEXTS] == [each[0] for each in theirs]
    assert [flexible_answer(text) for text in TEXTS[:5]] == ["(A)", "(A)", "No", "43", "7"]


def test_right_and_wrong(shared_data: Path) -> None:
    suite = SUITES.read({"suite": "bbh", "tasks": ["navigate", "word_sorting"]})
    asked = subject(shared_data, limit=10)
    measuring = suite.measure(asked)
    assert not isinstance(measuring, Measured)
    assert len(next(measuring)) == 10
    targets = [row["target"] for _, row in suite.rows(asked)]  # type: ignore[attr-defined]
    ends = [".", ""] * 5  # without its full stop the harness reads an answer wrongly
    texts = [f"Let us see. So the answer is {target}{end}" for target, end in zip(targets, ends, strict=True)]
    found = evaluated(measuring, [Written(text, None, "stop", 9) for text in texts])
    assert found["bbh/flexible"].estimate.value == 1.0
    assert found["bbh/harness"].estimate.value == 0.5
