"""BFCL: verdicts and system prompt equal those of the leaderboard's own code (recorded); the suite counts as it says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.bases.suite import Measured, Subject
from ingot.evals.engine.request import Generation, Written
from ingot.evals.suites.bfcl import Bfcl
from ingot.evals.suites.bfcl.check import right_calls
from ingot.evals.suites.bfcl.decode import DecodedCall, NoCall, decode
from ingot.evals.suites.bfcl.prompt import written_prompt
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import DataError
from ingot.workspace.interrupt import StopSignal
from tests.evals.suites.bfcl.cases import cases, digest, read, settled, written
from tests.evals.suites.bfcl.record_bfcl import FILE

RECORDED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))


def test_verdicts_are_the_leaderboards(shared_data: Path) -> None:
    tried = list(cases(shared_data))
    assert digest(tried) == RECORDED["cases"], "the answers have changed: record the verdicts again"
    verdicts = RECORDED["verdicts"]
    wrong = []
    for number, (category, row, key, text) in enumerate(tried):
        try:
            calls = decode(text)
        except NoCall:
            calls = None
        ours = (
            not calls if category == "irrelevance" else calls is not None and right_calls(calls, key, row["function"])
        )
        if str(int(ours)) != verdicts[number].replace(
            "E", "0"
        ):  # where the leaderboard's checker raises, nothing is right
            wrong.append((row["id"], text, verdicts[number]))
    assert not wrong, (len(wrong), wrong[:5])
    assert len(tried) == len(verdicts) > 1000 and verdicts.count("1") > 200 and verdicts.count("0") > 200


def test_system_prompt_is_the_leaderboards(shared_data: Path) -> None:
    row = read(shared_data, "multiple")[0]
    system = written_prompt(row["question"][0], row["function"]).messages[0].content
    assert hashlib.sha256(system.encode()).hexdigest() == RECORDED["system"]


@pytest.mark.parametrize(
    "text",
    ["[f(a=__import__('os').getpid() + 0)]", "[f(a=9 ** 9 ** 9)]", "[f(a='x' * 10 ** 12)]", "[f(a=" + "(" * 5000],
)
def test_nothing_of_an_answer_is_run(text: str) -> None:
    with pytest.raises(NoCall):
        decode(text)


def measured(suite: Bfcl, subject: Subject, answer: dict[str, Written]) -> Measured:
    """What the suite finds if the questions, by id, are answered so."""
    ids = [each.id for category in suite.categories for each in subject.some(suite.questions(category, subject))]
    measuring = suite.measure(subject)
    requests = next(measuring)
    assert all(isinstance(each, Generation) for each in requests) and len(requests) == len(ids)
    with pytest.raises(StopIteration) as stopped:
        measuring.send([answer.get(id, Written("I cannot do that.", None, "stop", 5)) for id in ids])
    found = stopped.value.value
    assert isinstance(found, Measured)
    return found


def keyed(data: Path, category: str) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """The right calls of each question."""
    return {
        row["id"]: [
            (
                name,
                {each: settled(real[0]) for each, right in values.items() if (real := [v for v in right if v != ""])},
            )
            for key in row["ground_truth"]
            for name, values in key.items()
        ]
        for row in read(data, f"possible_answer_{category}")
    }


def test_suite_with_text_calls(shared_data: Path) -> None:
    """Everything right in one category, nothing in the other, and chatter: categories weigh the same whatever their size."""
    subject = Subject("scripted", "chat", StopSignal(), data=shared_data)
    right = {id: Written(written(calls), None, "stop", 9) for id, calls in keyed(shared_data, "simple_python").items()}
    suite = Bfcl(categories=("simple_python", "parallel", "irrelevance"))
    found = {each.name: each for each in measured(suite, subject, right).metrics}
    values = {name: each.estimate.value for name, each in found.items()}
    assert values == pytest.approx(
        {"bfcl/simple_python": 1, "bfcl/parallel": 0, "bfcl/irrelevance": 1, "bfcl/non_live": 0.5}
    )
    assert found["bfcl/simple_python"].estimate.count == 400 and found["bfcl/non_live"].estimate.count == 600


def test_suite_with_native_calls(shared_data: Path) -> None:
    """Tools have no dots in their names, types are those of JSON schema, and calls come with the message."""
    subject = Subject("scripted", "chat", StopSignal(), data=shared_data, limit=50)
    suite = Bfcl(categories=("multiple", "irrelevance"), tools="native")
    answers = {
        id: Written(
            "", None, "stop", 9, Message("assistant", tool_calls=[ToolCall(n.replace(".", "_"), a) for n, a in c])
        )
        for id, c in keyed(shared_data, "multiple").items()
    }
    answers["irrelevance_0"] = Written("", None, "stop", 9, Message("assistant", tool_calls=[ToolCall("f", {})]))
    found = measured(suite, subject, answers)
    assert {each.name: each.estimate.value for each in found.metrics} == {"bfcl/multiple": 1, "bfcl/irrelevance": 0.98}
    asked = subject.some(suite.questions("multiple", subject))
    offered = [tool for each in asked for tool in suite.prompt(each).tools]
    assert not [tool["name"] for tool in offered if "." in tool["name"]]
    import jsonschema

    for tool in offered:
        jsonschema.Draft202012Validator.check_schema(tool["parameters"])


def test_questions_without_a_key_are_an_error(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.jsonl").write_text('{"id": "simple_python_0", "ground_truth": []}\n')
    suite = Bfcl(categories=("simple_python",), files={"answers_simple_python": str(tmp_path / "keys.jsonl")})
    with pytest.raises(DataError, match="simple_python_1 has no answer key"):
        next(suite.measure(Subject("scripted", "chat", StopSignal(), data=shared_data)))


def test_calls_of_a_parallel_question_are_taken_in_order() -> None:
    """The first key takes the first call that fits, even if another key needs it: as on the leaderboard."""
    function = {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}, "required": []}}
    keys = [{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}]
    assert right_calls([DecodedCall("f", {"a": 2}), DecodedCall("f", {"a": 1})], keys, [function])
    assert not right_calls([DecodedCall("f", {"a": 1}), DecodedCall("f", {"a": 2})], keys, [function])
