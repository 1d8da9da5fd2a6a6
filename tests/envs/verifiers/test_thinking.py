"""The form of thinking answers, and the language of thoughts and answers against real texts in many languages."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ingot.envs.verifiers.language import detect_language, in_language, same_language
from ingot.envs.verifiers.thinking import (
    ends_with_summary,
    keeps_budget,
    overlong_penalty,
    split_thinking,
    summary_of,
)
from ingot.envs.verifiers.words import word_set
from ingot.tokens.chat import Message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("<think>2+2</think>4", ("2+2", "4")),
        ("\n<think></think>\n4", ("", "\n4")),
        ("4", None),
        ("<think>2+2", None),
        ("2+2</think>4", None),
        ("so <think>2+2</think>4", None),
        ("<think>a</think><think>b</think>4", None),
        ("<think>a <think>b</think>4", None),
        ("<think>a</think>4</think>", None),
        ("<think>a</think>4<|im_end|>", None),
        ("<think>0<|x|</think>0<|x|", ("0<|x|", "0<|x|")),
        ("<think><tool_call>x</tool_call></think>4", None),
    ],
)
def test_exactly_one_closed_block(text: str, parts: tuple[str, str] | None) -> None:
    assert split_thinking(text) == parts


def test_the_budget_counts_thoughts_only() -> None:
    turn = Message("assistant", "a long answer of many words", thinking="three short words")
    assert keeps_budget(turn, 3) and not keeps_budget(turn, 2)
    assert not keeps_budget(turn, 16, count=len) and keeps_budget(turn, 17, count=len)
    assert keeps_budget(Message("assistant", "none"), 0)


def test_the_penalty_is_the_one_of_dapo() -> None:
    """The paper's setting: 20,480 tokens at most, the last 4,096 of them as a buffer."""
    lengths = (1, 16_384, 18_432, 20_480, 20_481)
    assert [overlong_penalty(length, 20_480, 4_096) for length in lengths] == [0, 0, -0.5, -1, -1]
    assert [overlong_penalty(length, 10, 0) for length in (10, 11)] == [0, -1]


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        ("We add the numbers.\n\nSummary: it is 4.", "it is 4."),
        ("We add.\n\n**Summary:** it is 4.", "it is 4."),
        ("We add.\n\n## Summary\n\nIt is 4.", "It is 4."),
        ("We add.\n\n## Summary\nIt is 4.", "It is 4."),
        ("Summary: first.\n\nThen the rest.", None),
        ("We add.\n\nSummary:", None),
        ("We add.\n\nSummarising would be nice.", None),
        ("", None),
    ],
)
def test_the_summary_is_the_last_paragraph(answer: str, summary: str | None) -> None:
    assert summary_of(answer) == summary
    assert ends_with_summary(answer, 5) == (summary is not None)


def test_a_summary_is_short_and_not_alone() -> None:
    assert not ends_with_summary("We add.\n\nSummary: it is 4.", 2)
    assert not ends_with_summary("Summary: it is 4.", 10)


def test_languages_of_the_declaration_of_human_rights(shared_data: Path) -> None:
    with gzip.open(shared_data / "udhr" / "udhr.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    wanted = word_set("en es pt ar hi fr ru de ja it bn uk th ur ta te bg ko pl he fa vi ne sw kn mr gu pa ml fi")
    texts = {row["bcp47"]: row["text"] for row in rows if row["bcp47"] in wanted}
    assert len(texts) >= 25
    wrong = [code for code, text in texts.items() if not in_language(text[:1500], code)]
    assert wrong == []
    assert not any(same_language(texts["en"], text) for code, text in texts.items() if code != "en")


def test_texts_without_a_language_decide_nothing() -> None:
    assert detect_language("12 + 30 = 42") == (None, 0.0)
    assert same_language("First I add the two numbers and then I halve the sum.", "42")
    assert same_language("First I add the two numbers and then I halve the sum.", "The answer is forty-two.")
    assert not same_language(
        "Zuerst addiere ich die beiden Zahlen und halbiere dann.",
        "Here is the answer to your question: it is forty-two.",
    )
