"""Prompts of one's own from files: what they ask, what an answer earns, and what reward functions see of a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.environment import TASKS
from ingot.envs.task import Task
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError


def tasks(rows: list[dict[str, Any]], folder: Path, **options: Any) -> tuple[Any, list[Task]]:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    kind = TASKS.find("prompts").model_validate({"train": (str(path),), **options})
    return kind, list(kind.rows("train") or ())


def test_a_prompt_is_a_text_or_messages(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3 + 4?"}]
    _, (text, messages) = tasks([{"prompt": "1 + 2?", "answer": 3}, {"prompt": chat, "level": "hard"}], tmp_path)
    assert text.messages == (Message("user", "1 + 2?"),) and text.answer == "3" and not text.thinking
    assert messages.messages == (Message("system", "Be brief."), Message("user", "3 + 4?"))
    assert messages.answer == "" and messages.data == {"level": "hard"}


@pytest.mark.parametrize(
    ("answer", "said", "earned"),
    [
        ("3", "3", 1.0),
        ("3", " 3.0 ", 1.0),
        ("3", "it is 3", 0.0),
        ("Anna", "Anna", 1.0),
        ("Anna", "Ben", 0.0),
        (None, "", 0.0),
    ],
)
def test_an_answer_earns_one_if_it_is_the_reference(
    answer: str | None, said: str, earned: float, tmp_path: Path
) -> None:
    """Where there is none no answer is right, not even an empty one: only reward functions give anything."""
    kind, (task,) = tasks([{"prompt": "?", "answer": answer}], tmp_path)
    score = kind.score(task, [Message("assistant", said)])
    assert (score.reward, score.correct) == (earned, bool(earned))
    assert kind.score_at_once(task, [Message("assistant", said)]) == score


def test_a_trace_is_asked_for_if_that_is_wanted(tmp_path: Path) -> None:
    _, (task,) = tasks([{"prompt": "?"}], tmp_path, thinking=True)
    assert task.thinking


@pytest.mark.parametrize("prompt", [None, "", 3, [], ["a"], [{"role": "user"}], [{"role": "user", "content": None}]])
def test_a_row_without_a_prompt_is_named(prompt: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"prompts.jsonl:2: the row has no prompt"):
        tasks([{"prompt": "a"}, {"prompt": prompt}], tmp_path)
