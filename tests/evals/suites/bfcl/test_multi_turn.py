"""BFCL's multi-turn conversations: verdicts and results equal those of the leaderboard's own evaluation (recorded), and the suite
plays them as it says.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.episode import Episode
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import rollout
from ingot.evals.bases.suite import Measured, Subject
from ingot.evals.engine.request import Play
from ingot.evals.suites.bfcl import conversation
from ingot.evals.suites.bfcl.apis import Services, classes_of, right
from ingot.evals.suites.bfcl.write import text_calls, tool_calls
from ingot.evals.suites.bfcl_multi_turn import BfclMultiTurn
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import DataError, RecipeError
from ingot.workspace.interrupt import StopSignal
from tests.envs.rollout.test_rollout import CHAT
from tests.evals.suites.bfcl.record_multi_turn import FILE
from tests.evals.suites.bfcl.trajectories import (
    NATIVE,
    conversations,
    digest,
    digest_results,
    functions,
    named,
    questions,
    written,
)
from tests.making.rows import write_rows
from tests.slow import first_fast

pytest.importorskip("bfcl_eval", reason="needs the services of bfcl-eval (pip install --no-deps bfcl-eval)")
RECORDED: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
Turns = list[list[list[str]]]


def test_reference_calls_are_right(shared_data: Path) -> None:
    found = "".join(
        str(int(right(json.dumps(row), [[turn] if turn else [] for turn in calls], calls)))
        for row, calls in questions(shared_data)
    )
    assert found == RECORDED["reference"] == "1" * 200


@pytest.mark.parametrize("every", first_fast([6, 1]))
def test_verdicts_and_results_are_the_leaderboards(every: int, shared_data: Path) -> None:
    tried = list(conversations(shared_data))
    assert digest(tried) == RECORDED["conversations"], "the conversations have changed: record the verdicts again"
    wrong = []
    recorded = zip(tried, RECORDED["verdicts"], RECORDED["results"].split(), strict=True)
    for (row, calls, texts), verdict, results in islice(recorded, 0, None, every):
        turns = [[step for text in turn if (step := text_calls(Message("assistant", text)))] for turn in texts]
        services = Services(row, classes_of(row))
        told = [services.call(each) for turn in turns for step in turn for each in step]
        if (str(int(right(json.dumps(row), turns, calls))), digest_results(told)) != (verdict, results):
            wrong.append((row["id"], texts, verdict, told))
    assert not wrong, (len(wrong), wrong[:3])
    assert len(tried) > 1000 and RECORDED["verdicts"].count("1") > 300 and RECORDED["verdicts"].count("0") > 300


def test_tool_calls_are_written_as_the_leaderboards() -> None:
    message = Message("assistant", tool_calls=[ToolCall(name, arguments) for name, arguments in NATIVE])
    assert tool_calls(message) == RECORDED["native"]


def test_system_prompt_is_the_leaderboards(shared_data: Path) -> None:
    suite = BfclMultiTurn()
    question = suite.questions("multi_turn_base", subject_of(shared_data, 1))[0]
    system = conversation.ServiceConversation().conversation(question, native=False).messages[0].content
    assert hashlib.sha256(system.encode()).hexdigest() == RECORDED["system"]


@pytest.mark.parametrize(
    "text",
    [
        "__import__(name='os')",
        "open(file='/etc/hostname')",
        "cd.__self__.__class__()",
        "pwd().__class__()",
        "(lambda: pwd())()",
        "[pwd() for _ in '12']",
        "_load_scenario(scenario={})",
        "json.dumps(obj=1)",
    ],
)
def test_only_public_methods_are_called(shared_data: Path, text: str) -> None:
    row, _ = questions(shared_data)[0]
    classes = classes_of(row)
    services, untouched = Services(row, classes), Services(row, classes)
    assert services.call(text).startswith("Error during execution: ") and services.same_state(untouched)


def subject_of(data: Path, limit: int | None = None) -> Subject:
    return Subject("scripted", "chat", StopSignal(), data=data, limit=limit, max_tokens=200_000)


def measured(suite: BfclMultiTurn, subject: Subject, script: Any) -> tuple[Measured, list[Episode]]:
    """What the suite finds if a script plays: a function of the episode."""
    measuring = suite.measure(subject)
    plays = [each for each in next(measuring) if isinstance(each, Play)]
    tasks = [replace(each.task, thinking=False) for each in plays]
    environments = {each.task.kind: each.environment for each in plays}
    episodes = list(rollout(tasks, Scripted(script, CHAT), CHAT, environments, limits=plays[0].limits))
    with pytest.raises(StopIteration) as stopped:
        measuring.send(episodes)
    assert isinstance(stopped.value.value, Measured)
    return stopped.value.value, episodes


def played_by(data: Path, *, native: bool, stop_early: Sequence[str] = ()) -> Any:
    """A policy that makes the reference calls one at a time, and for some questions only those of the first turn."""
    described = functions(data)
    plans: dict[str, list[Message]] = {}
    for row, reference in questions(data):
        offered = {each["name"]: each for service in row["involved_classes"] for each in described[service]}
        plans[row["id"]] = []
        for number, turn in enumerate(reference):
            if number == 0 or row["id"] not in stop_early:
                calls = [named(text, offered) for text in turn]
                plans[row["id"]] += [as_message(*call, native=native) for call in calls]
            plans[row["id"]].append(Message("assistant", "That is done."))
    return lambda episode: plans[episode.task.data["question"].id][episode.turns]


def as_message(name: str, arguments: dict[str, Any], *, native: bool) -> Message:
    if native:
        return Message("assistant", tool_calls=[ToolCall(name, arguments)])
    return Message("assistant", written([(name, arguments)]))


@pytest.mark.parametrize("native", [False, True])
def test_right_conversations_earn_and_short_ones_do_not(shared_data: Path, native: bool) -> None:
    suite = BfclMultiTurn(tools="native" if native else "prompt")
    short = ["multi_turn_base_1", "multi_turn_base_3"]
    script = played_by(shared_data, native=native, stop_early=short)
    found, episodes = measured(suite, subject_of(shared_data, 8), script)
    assert [each.score.error for each in episodes] == [None] * 8
    assert {each.task.data["question"].id for each in episodes if not each.score.correct} == set(short)
    (metric,) = found.metrics
    assert (metric.name, metric.estimate.value, metric.estimate.count) == ("bfcl/multi_turn_base", 0.75, 8)
    first = episodes[0].messages
    if native:
        assert [each.role for each in first[:3]] == ["assistant", "tool", "assistant"]
        assert json.loads(first[1].content) == {"current_working_directory": "document"}
        assert len(episodes[0].task.tools) == 18 + 14 and "[func_name1" not in episodes[0].task.messages[0].content
    else:
        assert [each.role for each in first[:3]] == ["assistant", "user", "assistant"]
        assert ast.literal_eval(first[1].content) == [
            {
                "role": "tool",
                "name": "cd(folder='document')",
                "content": '{"current_working_directory": "document"}',
            }
        ]


def test_tool_calls_of_one_answer_are_run_in_order(shared_data: Path) -> None:
    """One of them is no tool: the others get their own results."""
    calls = [
        ToolCall("pwd", {}),
        ToolCall("no_such_tool", {}),
        ToolCall("cd", {"folder": "document"}),
        ToolCall("pwd", {}),
    ]
    answers = [Message("assistant", tool_calls=calls), *[Message("assistant", "Done.")] * 4]
    _, (episode,) = measured(
        BfclMultiTurn(tools="native"), subject_of(shared_data, 1), lambda episode: answers[episode.turns]
    )
    told = [each.content for each in episode.messages if each.role == "tool"]
    assert [json.loads(each) for each in (told[0], told[2], told[3])] == [
        {"current_working_directory": "/workspace"},
        {"current_working_directory": "document"},
        {"current_working_directory": "/workspace/document"},
    ]
    assert "no_such_tool" in told[1] and episode.score.rewards == {"correct": 0, "finished": 1}


def test_endless_and_slow_conversations_are_stopped(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that never stops calling has 21 steps; one whose call takes too long has none after it."""
    monkeypatch.setattr(conversation, "SECONDS", 2.0)
    slow = "[logarithm(value=10, base=3, precision=10000000)]"

    def script(episode: Episode) -> Message:
        services = episode.task.data["question"].services["involved_classes"]
        return Message("assistant", slow if "MathAPI" in services else "[no_such_function()]")

    numbers = [number for number, (row, _) in enumerate(questions(shared_data)) if "MathAPI" in row["involved_classes"]]
    _, episodes = measured(BfclMultiTurn(), subject_of(shared_data, numbers[0] + 1), script)
    endless, stopped = episodes[0], episodes[numbers[0]]
    assert (endless.turns, endless.ended, endless.score.correct, endless.score.rewards["finished"]) == (
        21,
        "stopped",
        False,
        0,
    )
    assert (stopped.turns, stopped.ended, stopped.score.correct, stopped.score.error) == (1, "stopped", False, None)


def test_functions_that_come_later(shared_data: Path, tmp_path: Path) -> None:
    """A missing function is offered in the text of a later turn; tools of a chat template cannot be."""
    row, reference = questions(shared_data)[0]
    row = {**row, "id": "multi_turn_miss_func_0", "missed_function": {"1": ["sort"]}}
    row["question"] = [row["question"][0], [], *row["question"][1:]]
    answers = {"id": row["id"], "ground_truth": [reference[0], [], *reference[1:]]}
    write_rows(tmp_path / "questions.jsonl", [row])
    write_rows(tmp_path / "answers.jsonl", [answers])
    files = {"multi_turn_miss_func": "questions.jsonl", "answers_multi_turn_miss_func": "answers.jsonl"}
    given = {name: str(tmp_path / file) for name, file in files.items()}
    suite = BfclMultiTurn(categories=("multi_turn_miss_func",), files=given)
    offered = {each["name"]: each for service in row["involved_classes"] for each in functions(shared_data)[service]}
    plan = [written([named(text, offered) for text in turn]) for turn in answers["ground_truth"]]
    answered = [each for turn in plan for each in (turn, "Done.") if each != "[]"]
    found, (episode,) = measured(
        suite, subject_of(shared_data), lambda episode: Message("assistant", answered[episode.turns])
    )
    assert found.metrics[0].estimate.value == 1
    assert '"name": "sort"' not in episode.task.messages[0].content
    (offer,) = [each.content for each in episode.messages if "What about now?" in each.content]
    assert offer.startswith("[{'name': 'sort'")
    with pytest.raises(RecipeError, match="cannot change within a conversation"):
        next(suite.model_copy(update={"tools": "native"}).measure(subject_of(shared_data)))


def test_what_is_missing_is_said(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "answers.jsonl").write_text('{"id": "multi_turn_base_0", "ground_truth": []}\n')
    files = {"answers_multi_turn_base": str(tmp_path / "answers.jsonl")}
    with pytest.raises(DataError, match="multi_turn_base_0 has 4 turns, and reference calls of 0"):
        BfclMultiTurn(files=files).questions("multi_turn_base", subject_of(shared_data))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="--no-deps bfcl-eval"):
        next(BfclMultiTurn().measure(subject_of(shared_data)))
