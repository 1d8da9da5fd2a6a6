"""Makers of conversations: a server whose answers are known, and what is kept, asked again and traced back to its row."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.verifiers.instructions.instruction import find_instruction
from ingot.post.data.conversations.row_forms import conversations_of, prompt_of
from ingot.post.synthesis.config import SynthesizeConfig
from ingot.post.synthesis.makers.follow_ups import FollowUps
from ingot.post.synthesis.stage import run
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError
from tests.data.synthesize.server import completion, serving
from tests.making.rows import write_rows
from tests.making.stages import stage_folder

SUMS = [{"question": f"What is {number} + {number}?", "answer": f"#### {2 * number}"} for number in range(12)]


def make(tmp_path: Path, url: str, maker: dict[str, Any], rows: list[dict[str, Any]], **options: Any) -> Any:
    """What a stage makes of the rows: its summary and its conversations."""
    file = write_rows(tmp_path / "rows.jsonl", rows)
    folder = stage_folder(tmp_path / "out")
    entry = {"environment": {"train": [str(file)], **maker}, "count": len(rows), **options}
    config = SynthesizeConfig.model_validate({"environments": [entry], "endpoint": {"url": url, "model": "pupil"}})
    (summary,) = run(config, {}, folder)["environments"].values()
    name = maker["task"]
    lines = (folder.path / f"conversations/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return summary, [json.loads(line) for line in lines], file


def test_cut_and_wrong_traces_are_asked_again(tmp_path: Path) -> None:
    """The first answer to a sum is cut in its trace, the second is wrong, the third is right: two more rounds get all."""
    asked = Counter[str]()

    def pupil(body: dict[str, Any], _: dict[str, str]) -> Any:
        question = body["messages"][-1]["content"]
        asked[question] += 1
        twice = 2 * int(re.findall(r"\d+", question)[0])
        if asked[question] == 1:
            return completion("<think>let me see")
        right = twice if asked[question] == 3 else twice + 1
        return completion(f"<think>\nadd them\n</think>\n\nThe answer is {right}.")

    maker = {"task": "answers", "filters": ["incomplete_thoughts", "accuracy"]}
    with serving(pupil) as url:
        summary, rows, file = make(tmp_path, url, maker, SUMS, samples=1, again=2)
    assert set(asked.values()) == {3}
    assert (summary["kept"], summary["attempts"], summary["refused"]) == (12, 36, {"reward too low": 24})
    for row in rows:
        place = int(row["made_from"].removeprefix(f"{file}:")) - 1
        (conversation,) = conversations_of(row)
        question = Message("user", SUMS[place]["question"])
        assert conversation.messages == [question, Message("assistant", f"The answer is {2 * place}.", "add them")]
        assert (row["writer"], conversation.thinking) == ("pupil", True)


def test_what_was_answered_is_not_asked_a_second_time(tmp_path: Path) -> None:
    asked = Counter[str]()

    def pupil(body: dict[str, Any], _: dict[str, str]) -> Any:
        asked[body["messages"][-1]["content"]] += 1
        return completion("yes")

    maker = {"task": "answers", "thinking": False}
    with serving(pupil) as url:
        first = make(tmp_path, url, maker, SUMS, samples=2)
        again = make(tmp_path, url, maker, SUMS, samples=2)
    assert set(asked.values()) == {2}
    assert first == again


def test_a_writer_that_does_not_think_teaches_no_thinking(tmp_path: Path) -> None:
    """Asked to think, as makers do by default, it answers at once: learnt as thinking, a model would think of nothing."""
    with serving(lambda body, _: completion("yes")) as url:
        _, rows, _ = make(tmp_path, url, {"task": "answers"}, SUMS[:2], samples=1)
    assert [row["thinking"] for row in rows] == [False, False]


def test_questions_to_given_answers(tmp_path: Path) -> None:
    """The given texts are the answers, letter by letter; a question that gives the answer away is dropped by a filter."""
    texts = [f"{city} lies on the river {river}." for city, river in (("Paris", "Seine"), ("Vienna", "Danube"))]

    def writer(body: dict[str, Any], _: dict[str, str]) -> Any:
        city = re.findall(r"(\w+) lies on", body["messages"][-1]["content"])[0]
        return completion(f"On which river does {city} lie?")

    maker = {"task": "questions", "filters": [{"filter": "topics", "without": ["Vienna"], "of": "question"}]}
    with serving(writer) as url:
        summary, rows, _ = make(tmp_path, url, maker, [{"text": text} for text in texts], samples=1)
    assert summary["kept"] == 1
    assert [[turn["content"] for turn in row["messages"]] for row in rows] == [
        ["On which river does Paris lie?", texts[0]]
    ]


def test_follow_ups_are_kept_where_every_instruction_is_followed(tmp_path: Path) -> None:
    """A server that always says the same follows some instructions by chance; which, is checked again."""
    said = "Bread is old. It is baked at night, and people eat it in the morning. It is good bread, and there is enough of it."
    rows = [
        {"prompt": f"Say something about bread, number {number}.", "completion": "It is bread."} for number in range(40)
    ]
    with serving(lambda body, _: completion(said)) as url:
        summary, made, file = make(tmp_path, url, {"task": "follow_ups", "thinking": False, "most": 1}, rows, samples=1)
    kind = FollowUps(train=(str(file),), thinking=False, most=1)
    tasks = kind.rows("train")
    assert tasks is not None
    followed = [all(find_instruction(id, kwargs).follows(said) for id, kwargs in task.asked) for task in tasks]
    assert 0 < summary["kept"] == sum(followed) < 40
    turns = {task.question for task, fine in zip(tasks, followed, strict=True) if fine}
    assert {row["messages"][2]["content"] for row in made} == turns
    assert all(len(row["messages"]) == 4 for row in made)


def test_judgements_are_kept_where_they_are_true(tmp_path: Path) -> None:
    """Half of the answers are wrong; a judge that always says `right` is right about the other half."""
    rows = [
        {
            "prompt": each["question"],
            "completion": f"The answer is {2 * number + number % 2}.",
            "reference": str(2 * number),
        }
        for number, each in enumerate(SUMS)
    ]
    with serving(lambda body, _: completion("<think>count</think>It adds up: \\boxed{right}")) as url:
        summary, made, file = make(tmp_path, url, {"task": "judgements"}, rows, samples=1)
    assert summary["kept"] == 6
    places = sorted(int(row["made_from"].removeprefix(f"{file}:")) for row in made)
    assert places == [1, 3, 5, 7, 9, 11]


def test_functions_that_a_second_model_plays(tmp_path: Path) -> None:
    """The first question is answered through two calls, the second by one that breaks the schema, the third by none."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    rows = [{"prompt": f"Weather {number}?", "tools": tools} for number in range(3)]
    shown = list[dict[str, Any]]()

    def service(body: dict[str, Any], _: dict[str, str]) -> Any:
        shown.append(json.loads(body["messages"][-1]["content"]))
        return completion("```json\n" + json.dumps({"degrees": 20 + len(shown)}) + "\n```")

    def writer(body: dict[str, Any], _: dict[str, str]) -> Any:
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        number = int(body["messages"][0]["content"].split()[1][0])
        if number == 2 or len(results) == 2 or (number == 1 and results):
            return completion(f"So it is: {results}")
        city = {"city": ["Paris", "Vienna"][len(results)]} if number == 0 else {"town": 3}
        call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": json.dumps(city)}}
        return 200, {}, {"choices": [{"message": {"role": "assistant", "content": "", "tool_calls": [call]}}]}

    with serving(service) as simulator, serving(writer) as url:
        maker = {"task": "simulated_tools", "thinking": False, "simulator": {"url": simulator, "model": "service"}}
        summary, (made,), _ = make(tmp_path, url, maker, rows, samples=1)
    assert summary["refused"] == {"reward too low": 2}
    assert [each["arguments"] for each in shown] == [{"city": "Paris"}, {"city": "Vienna"}]
    assert shown[1]["calls_before"] == [{"call": "weather", "arguments": {"city": "Paris"}, "result": {"degrees": 21}}]
    (conversation,) = conversations_of(made)
    roles = [message.role for message in conversation.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [json.loads(message.content) for message in conversation.messages if message.role == "tool"] == [
        {"degrees": 21},
        {"degrees": 22},
    ]
    assert conversation.tools[0]["name"] == "weather"


def test_prompts_of_rows() -> None:
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    assert [message.content for message in prompt_of({"messages": talk}).messages] == ["Hi"]
    assert [message.content for message in prompt_of({"prompt": [*talk, talk[0]]}).messages] == ["Hi", "Ho", "Hi"]
    assert prompt_of({"question": "Why?", "answer": "So."}).messages == [Message("user", "Why?")]
    with pytest.raises(DataError, match="nothing is asked"):
        prompt_of({"text": "a text"})
