"""Tasks of Inspect score under our engine what they score under Inspect, for the same answers to the same prompts.

inspect-ai wants an older fsspec than the one that is pinned here, so it stands in an environment of its own:
PYTHONPATH=THERE/lib/python3.11/site-packages pytest tests/evals/suites/test_inspect.py
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.engine.request import Conversation, Generation
from ingot.evals.suites.inspect import Inspect
from ingot.workspace.errors import RecipeError
from tests.evals.suites.asking import measure, recorded, subject, units

inspect_ai = pytest.importorskip(
    "inspect_ai", reason="inspect-ai is not installed (it wants an older fsspec: use an environment of its own)"
)
TASKS = Path(__file__).with_name("inspect_tasks.py")
CHAT = subject(form="chat")


def reply(messages: list[tuple[str, str]]) -> str:
    """An answer that follows from every character of the prompt, so that another prompt has another answer."""
    number = int(hashlib.sha256(repr(messages).encode()).hexdigest()[:8], 16)
    text = messages[-1][1]
    if "ANSWER:" in text:
        letters = ["A,C", "A, C", "AC", "C and A", "A", "B,C", "C", ""]
        return f"Let me think.\n\nANSWER: {letters[number % len(letters)]}"
    first, second = map(int, re.findall(r"\d+", text)[:2])
    total = first + second
    forms = [f"{total}", f"It is {total}.", f"{total + 1}", f"${total:,}.00", "", f"{total} of course", f"**{total}**"]
    return forms[number % len(forms)]


def ours(name: str) -> dict[str, Any]:
    def script(request: Generation) -> str:
        assert isinstance(request.prompt, Conversation)
        return reply([(each.role, each.content) for each in request.prompt.messages])

    suite = Inspect.model_validate({"suite": "inspect", "task": f"{TASKS}:{name}"})
    return dict(units(measure(suite, script, CHAT)))


def theirs(name: str, folder: Path) -> list[dict[str, float]]:
    """The score of every sample by Inspect's own runner, for each scorer."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import value_to_float

    def answer(messages: Any, *_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mock", reply([(each.role, each.text) for each in messages]))
        output.usage = ModelUsage()  # it would count tokens with a vocabulary from the network
        return output

    model = get_model("mockllm/model", custom_outputs=answer)
    (log,) = inspect_ai.eval(f"{TASKS}@{name}", model=model, display="none", log_dir=str(folder))
    assert log.status == "success", log.error
    means = [(each.metrics.get("accuracy") or each.metrics["mean"]).value for each in log.results.scores]
    scorers = list(log.samples[0].scores)
    found: list[dict[str, float]] = []
    for scorer, mean in zip(scorers, means, strict=True):
        values: dict[str, list[float]] = {}
        for sample in log.samples:
            values.setdefault(str(sample.id), []).append(value_to_float()(sample.scores[scorer].value))
        found.append({id: sum(each) / len(each) for id, each in values.items()})
        assert sum(found[-1].values()) / len(found[-1]) == pytest.approx(mean)
    return found


@pytest.mark.parametrize(("name", "scorers", "samples"), [("divisors", 1, 20), ("sums", 5, 31)])
def test_scores_are_those_of_inspect(name: str, scorers: int, samples: int, tmp_path: Path) -> None:
    mine, expected = ours(name), theirs(name, tmp_path)
    assert len(mine) == len(expected) == scorers and {len(each) for each in expected} == {samples}
    assert all(0 < sum(each.values()) < samples for each in expected), "some are right, and some are wrong"
    assert list(mine.values()) == expected


def test_the_task_says_how_its_answers_are_asked_for() -> None:
    suite = Inspect.model_validate({"task": f"{TASKS}:sums", "limit": 3, "max_new_tokens": 9})
    asked = recorded(suite, CHAT)
    assert len(asked) == 6 and [each.sample for each in asked] == [0, 1] * 3
    assert {(each.max_new_tokens, each.temperature, each.stop) for each in asked} == {(33, 0.5, ("\n\n",))}
    choices = recorded(Inspect.model_validate({"task": f"{TASKS}:divisors", "arguments": {"count": 2}}), CHAT)
    assert [(each.max_new_tokens, each.temperature) for each in choices] == [(1024, 0.0)] * 2


def test_what_needs_inspects_own_runner_is_refused() -> None:
    with pytest.raises(ValueError, match=r"write file\.py:name"):
        Inspect.model_validate({"task": f"{TASKS}@sums"})
    with pytest.raises(RecipeError, match="tools"):
        measure(Inspect.model_validate({"task": f"{TASKS}:shell"}), lambda _: "x", CHAT)
    with pytest.raises(RecipeError, match="a model grades its answers"):
        measure(Inspect.model_validate({"task": f"{TASKS}:graded"}), lambda _: "x", CHAT)
    with pytest.raises(RecipeError, match="no Task of Inspect"):
        measure(Inspect.model_validate({"task": "builtins:dict"}), lambda _: "x", CHAT)
