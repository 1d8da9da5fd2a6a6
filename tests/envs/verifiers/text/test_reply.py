"""Verifiers against things that models write to be paid without being right."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.envs.mix import TaskMix
from ingot.envs.task import make_task
from ingot.envs.verifiers.text.reply import format_ok, parse_number, same_number, same_text
from ingot.tokens.chat import Message, ToolCall

MIX = TaskMix()


@pytest.mark.parametrize("text", ["85", " 85\n", "85.", "85.0", "+85", "085"])
def test_writings_of_the_same_number(text: str) -> None:
    assert same_number(text, "85")


def test_thousands_commas() -> None:
    assert same_number("1,234,567", "1234567")
    assert same_number("-1,234.", "-1234")
    assert not same_number("12,34", "1234")
    assert not same_number("1,2345", "12345")
    assert not same_number(",123", "123")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "85 86",
        "84 85",
        "85, 86",
        "1 2 3 85",
        "85..",
        "850",
        "8 5",
        "-85",
        "85%",
        "eighty-five",
        "85\n86",
        "85e0",
        "0x55",
        "nan",
        "inf",
        "８５",
        "٨٥",
        "85/1",
        "84.99999999999999999999999",
        "= 85",
        "85!",
        "8" * 5000,
    ],
)
def test_what_is_not_the_number(text: str) -> None:
    assert not same_number(text, "85")


@given(st.one_of(st.text(), st.text(alphabet="085.,+- \n", max_size=8)))
def test_no_text_is_right_unless_it_is_the_number(text: str) -> None:
    stripped = text.strip()
    plain = stripped.removesuffix(".").replace(",", "")
    if same_number(text, "85"):
        assert re.fullmatch(r"\+?0*85(\.0+)?", plain)


@given(st.text(alphabet="0123456789,.+- e", max_size=12))
def test_number_parsing_agrees_with_python_where_python_reads_it(text: str) -> None:
    number = parse_number(text)
    if number is not None:
        assert float(text.strip().removesuffix(".").replace(",", "")) == pytest.approx(float(number))


@given(st.text(), st.text())
def test_random_replies_are_wrong(content: str, thinking: str) -> None:
    for task in MIX.generate(1, 8, "train"):
        score = MIX.score(task, [Message(role="assistant", content=content, thinking=thinking)])
        assert score.reward == 0.0 or content.strip().strip(".+0") == task.answer.strip("0")
        if not task.answer.isdigit():
            assert score.correct == same_text(content, task.answer)


def test_form_with_thinking() -> None:
    def check(*messages: Message) -> bool:
        return format_ok(messages, thinking=True)

    good = Message(role="assistant", content="85", thinking="7+8+0=15")
    assert check(good)
    assert not check()
    assert not check(Message(role="assistant", content="85"))
    assert not check(Message(role="assistant", content=" \n", thinking="x"))
    assert not check(Message(role="assistant", content="85", thinking="x", problems=["</think> is missing"]))
    assert not check(Message(role="assistant", content="<think>85", thinking="x"))
    assert not check(Message(role="assistant", content="85<|im_end|>", thinking="x"))
    for token in ("<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|end|>", "<｜end▁of▁sentence｜>"):
        assert not check(Message(role="assistant", content=f"85{token}", thinking="x"))
        assert not check(Message(role="assistant", content="85", thinking=f"x {token}"))
    for content in ("0<|x|", "$0<|x-3|<1$", "0<|x|>y", "x <| y", "a <|> b", "f <| g |> h", "{x: 0<|x|}"):
        assert check(Message(role="assistant", content=content, thinking="x")), content
    assert not check(Message(role="assistant", content="85", thinking="x</think>85"))
    assert not check(good, Message(role="tool", content="85"))
    assert not check(Message(role="assistant", content="85", thinking="x", tool_calls=[ToolCall("calculator", {})]))
    bad_first = Message(role="assistant", thinking=None, tool_calls=[ToolCall("calculator", {})])
    assert not check(bad_first, Message(role="tool", content="85"), good)


def test_form_without_thinking() -> None:
    assert format_ok([Message(role="assistant", content="5")], thinking=False)
    assert not format_ok([Message(role="assistant", content="5", thinking="hm")], thinking=False)
    assert not format_ok([Message(role="assistant", content="5", thinking="")], thinking=False)


def test_only_the_last_message_counts() -> None:
    task = make_task("arithmetic", "What is 80 + 5?", "85")
    replies = [
        [Message(role="assistant", content="84", thinking="85")],
        [Message(role="assistant", content="85", thinking=""), Message(role="assistant", content="84", thinking="")],
        [Message(role="tool", content="85")],
        [Message(role="user", content="85")],
        [],
    ]
    assert [MIX.score(task, reply).correct for reply in replies] == [False] * len(replies)
