"""Programming problems from files: a reply's program is run against tests that it cannot read (verifiers/code.py).

The program is the last Python block of the reply, or the whole reply if it has none. Tests are Python code that asserts.
"""

from __future__ import annotations

import random
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from ingot.envs.episode import Score
from ingot.envs.files import FileEnvironment
from ingot.envs.task import Task
from ingot.envs.verifiers.code import verify
from ingot.envs.verifiers.code_tests import Asserts
from ingot.envs.verify import final_content, format_ok
from ingot.sandbox.pool import shared_pool
from ingot.sandbox.program import Limits
from ingot.tokens.chat import Message

BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL | re.IGNORECASE)


def program_of(content: str) -> str:
    """The program in a reply."""
    blocks = BLOCK.findall(content)
    return str(blocks[-1]) if blocks else content


class Programs(FileEnvironment):
    """Programming problems; subclasses say what the rows are."""

    thinking: bool = Field(True, description="ask for a trace before the program")
    reward: Literal["all", "share"] = Field("all", description="1 if all tests pass, or the share that passes")
    seconds: float = Field(10.0, gt=0, description="time for all tests of a problem")
    unsafe: bool = Field(False, description="run programs also where nothing isolates them from your files")

    @abstractmethod
    def tests(self, task: Task) -> Asserts:
        """The tests of a task."""

    def source(self, task: Task, program: str) -> str:
        """The program that is tested: by default as it is."""
        return program

    def solution(self, task: Task) -> list[Message]:
        block = f"```python\n{task.answer.rstrip()}\n```"
        return [Message("assistant", block, "" if task.thinking else None)]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """The same program, which returns nothing."""
        (reply,) = self.solution(task)
        return [replace(reply, content=re.sub(r"\breturn\b.*", "return None", reply.content))]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        well_formed = format_ok(messages, task.thinking)
        program = self.source(task, program_of(final_content(messages)))
        limits = Limits(self.seconds, unsafe=self.unsafe)
        verdict = verify(program, self.tests(task), shared_pool(), limits, self.reward)
        correct = verdict.total > 0 and verdict.passed == verdict.total
        return Score(
            verdict.reward * well_formed, correct, well_formed, {"tests_passed": verdict.passed / max(1, verdict.total)}
        )
