"""Multi-round co-reference: conversations are as described, and answers score by how much they repeat."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Conversation, Generation, Written
from ingot.evals.suites.mrcr import Mrcr, score
from ingot.tokens.chat import Message
from ingot.workspace.errors import RecipeError
from ingot.workspace.interrupt import StopSignal
from tests.evals.conftest import World

SUITE = Mrcr(lengths=(2048, 4096), copies=(2, 4), count=3)


@pytest.fixture(scope="module")
def subject(world: World) -> Subject:
    return Subject("tiny", "chat", StopSignal(), given_tokenizer=world.tokenizer, thinking=False)


def test_conversations(subject: Subject, world: World) -> None:
    groups = SUITE.groups(subject)
    assert list(groups) == ["2_needles/2048", "4_needles/2048", "2_needles/4096", "4_needles/4096"]
    assert groups == SUITE.groups(subject)
    for name, members in groups.items():
        copies, length = int(name[0]), int(name.split("/")[1])
        for each in members:
            found = re.match(
                r"Begin with (\w{12}) and then repeat your (\d)\w\w (.*) about (.*), word", each.messages[-1].content
            )
            assert found is not None and found[1] == each.prefix
            pairs = list(zip(each.messages[:-1:2], each.messages[1::2], strict=True))
            assert all((first.role, second.role) == ("user", "assistant") for first, second in pairs)
            same = [reply.content for asked, reply in pairs if asked.content == f"Write a {found[3]} about {found[4]}."]
            assert len(same) == len(set(same)) == copies and same[int(found[2]) - 1] == each.reply
            answer = [Message("assistant", each.prefix + each.reply)]
            tokens, _ = world.chat.conversation([*each.messages, *answer], thinking=False)
            assert length - 400 < len(tokens) <= length
    with pytest.raises(RecipeError, match="8 replies do not fit into 256 tokens"):
        Mrcr(lengths=(256,), copies=(8,)).groups(subject)


def test_scores() -> None:
    """ratio = 2 · matched / (length of both), worked out by hand."""
    assert score("x7 abcd", "abcd", "x7 ") == 1
    assert score(" x7 abcd", "abcd", "x7 ") == score("abcd", "abcd", "x7 ") == score("", "abcd", "x7 ") == 0
    assert score("x7 abXd", "abcd", "x7 ") == pytest.approx(2 * 3 / 8)
    assert score("x7 ", "abcd", "x7 ") == 0
    assert score("x7 abcdabcd", "abcd", "x7 ") == pytest.approx(2 * 4 / 12)


def test_another_copy_scores_less_than_the_right_one(subject: Subject) -> None:
    measuring = SUITE.measure(subject)
    requests = next(measuring)
    asked = [each for members in SUITE.groups(subject).values() for each in members]
    answers = []
    for number, (request, each) in enumerate(zip(requests, asked, strict=True)):
        assert request == Generation(Conversation(each.messages), max_new_tokens=512)
        replies = [
            message.content for message in each.messages if message.content.split("\n")[0] == each.reply.split("\n")[0]
        ]
        wrong = next(reply for reply in replies if reply != each.reply)
        answers.append(Written(each.prefix + (each.reply if number % 2 else wrong), None, "stop", 9))
    with pytest.raises(StopIteration) as stopped:
        measuring.send(answers)
    metrics = {each.name: each for each in stopped.value.value.metrics}
    units = list(metrics["mrcr/score"].units.values())
    assert units[1::2] == [1.0] * 6 and all(0.1 < value < 0.9 for value in units[::2])
    assert list(metrics) == ["mrcr/score", *(f"mrcr/{name}" for name in SUITE.groups(subject))]


def test_published_rows(subject: Subject, tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "Write."},
        {"role": "assistant", "content": "Text."},
        {"role": "user", "content": "Again!"},
    ]
    row = {"prompt": json.dumps(turns), "answer": "q9Text.", "random_string_to_prepend": "q9", "n_needles": 2}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    measuring = Mrcr(files=(str(tmp_path / "rows.jsonl"),)).measure(subject)
    (request,) = next(measuring)
    assert isinstance(request, Generation) and isinstance(request.prompt, Conversation)
    assert [message.to_dict() for message in request.prompt.messages] == turns
    with pytest.raises(StopIteration) as stopped:
        measuring.send([Written("q9Text!", None, "stop", 3)])
    assert stopped.value.value.metrics[0].estimate.value == pytest.approx(0.8)
