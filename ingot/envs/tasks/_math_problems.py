r"""Mathematical problems from files, whose answers are compared as mathematics (verifiers/math/same_answer.py).

The reply must mark one final answer: \boxed{…}, a line "#### …", or "the answer is …". With `python` the policy has a Python
session as a tool, in a sandbox of its own, for as long as the episode lasts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from ingot.envs.episode import Score
from ingot.envs.files import FileEnvironment
from ingot.envs.rows import Row, need
from ingot.envs.task import Task
from ingot.envs.tools.python_session import PYTHON_SESSION, open_session
from ingot.envs.verifiers.children import ENDED, TOO_SLOW
from ingot.envs.verifiers.math.same_answer import DIFFERENT, SAME, TOO_LARGE, compare, extract_answer, same_at_once
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message


class MathProblems(FileEnvironment):
    """Problems with one final answer; subclasses say which columns have them."""

    thinking: bool = Field(True, description="ask for a trace before the answer")
    instruction: str = Field(
        r"Put your final answer in \boxed{}.", description="said after each problem: in which form to answer"
    )
    last_number: bool = Field(False, description="where no answer is marked, take the last number of the reply")
    python: bool = Field(False, description="offer a Python session as a tool")
    unsafe: bool = Field(False, description="run the model's Python also where nothing isolates it from your files")

    def problem(self, row: Row, place: str) -> tuple[str, str, str]:
        """The problem, its answer, and a worked solution (which may be empty)."""
        return need(row, "problem", str, place), need(row, "answer", str, place), str(row.get("solution") or "")

    def read(self, row: Row, place: str) -> Task | None:
        problem, answer, solution = self.problem(row, place)
        tools = (PYTHON_SESSION,) if self.python else ()
        question = f"{problem}\n\n{self.instruction}".strip()
        return self.ask(
            question, answer, fact=problem, thinking=self.thinking, tools=tools, data={"solution": solution}
        )

    def solution(self, task: Task) -> list[Message]:
        worked = str(task.data["solution"])
        boxed = rf"\boxed{{{task.answer}}}"
        if task.thinking:
            return [Message("assistant", boxed, worked)]
        return [Message("assistant", worked if boxed in worked else f"{worked}\n\n{boxed}".strip())]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """The same solution with another answer."""
        (reply,) = self.solution(task)
        wrong = str(int(task.answer) + rng.choice((-10, -1, 1, 10))) if task.answer.isdigit() else f"{task.answer}+1"
        content = reply.content.replace(rf"\boxed{{{task.answer}}}", rf"\boxed{{{wrong}}}")
        return [Message("assistant", content, reply.thinking)]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        answer = self._answer(messages)
        return self._scored(task, messages, answer, DIFFERENT if answer is None else compare(answer, task.answer))

    def score_at_once(self, task: Task, messages: Sequence[Message]) -> Score | None:
        if type(self).score is not MathProblems.score or self.rewards():
            return super().score_at_once(task, messages)
        answer = self._answer(messages)
        if answer is None:
            return self._scored(task, messages, answer, DIFFERENT)
        known = same_at_once(answer, task.answer)
        return None if known is None else self._scored(task, messages, answer, compare(answer, task.answer))

    def _answer(self, messages: Sequence[Message]) -> str | None:
        return extract_answer(final_content(messages), last_number=self.last_number)

    def _scored(self, task: Task, messages: Sequence[Message], answer: str | None, status: str) -> Score:
        """`detail` counts the answers that earn nothing because they cannot be compared, by cause."""
        correct, well_formed = status == SAME, format_ok(messages, task.thinking)
        detail = {
            "answered": float(answer is not None),
            "answers_too_large": float(status == TOO_LARGE),
            "answers_too_slow": float(status in (TOO_SLOW, ENDED)),
        }
        return Score(float(correct and well_formed), correct, well_formed, detail)

    @property
    def stateful(self) -> bool:
        return self.python

    def setup(self, task: Task) -> Any:
        return open_session(unsafe=self.unsafe) if self.python else None

    def teardown(self, state: Any) -> None:
        if state is not None:
            state.close()
