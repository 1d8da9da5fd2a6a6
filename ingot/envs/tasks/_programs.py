"""Programming problems from files: a reply's program is run against tests that it cannot read (verifiers/code/verify.py).

The program is the last block of the reply that defines what is tested; without one, its last Python block; without blocks, the
whole reply. Blocks are fenced as in CommonMark (spec.commonmark.org, 4.5). Tests are Python code that asserts.
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
from ingot.envs.verifiers.code.asserts import missing_names
from ingot.envs.verifiers.code.tests import Asserts
from ingot.envs.verifiers.code.verify import verify
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.sandbox.pool import shared_pool
from ingot.sandbox.program import Limits
from ingot.tokens.chat import Message

FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*(.*?)[ \t]*")
PYTHON = re.compile(r"[{.]*i?py(?:thon)?[\d.]*(?![\w-])", re.IGNORECASE)
INDENT = 3  # a closing fence may stand so much further in than the opening one; more is text, as in a docstring


def program_of(content: str, names: Sequence[str] = ()) -> str:
    """The program in a reply, which defines `names`."""
    found = blocks_of(content.replace("\r\n", "\n"))
    named = [text for _, text in found if names and all(defines(text, name) for name in names)]
    python = [text for info, text in found if PYTHON.match(info)]
    plain = [text for info, text in found if not info]
    return (named or python or plain or [text for _, text in found] or [content.replace("\r\n", "\n")])[-1]


def blocks_of(content: str) -> list[tuple[str, str]]:
    """The fenced blocks: what stands behind the fence, and the text without the fence's indentation."""
    found: list[tuple[str, list[str]]] = []
    fence = indent = ""
    for line in content.split("\n"):
        mark = FENCE.fullmatch(line)
        if fence and mark and not mark[3] and mark[2].startswith(fence) and len(mark[1]) <= len(indent) + INDENT:
            fence = ""
        elif fence:
            blank = len(line) - len(line.lstrip(" \t"))
            found[-1][1].append(line[min(blank, len(indent)) :])
        elif mark and not (mark[2][0] == "`" and "`" in mark[3]):
            indent, fence = mark[1], mark[2]
            found.append((mark[3], []))
    return [(info, "\n".join(lines)) for info, lines in found]


def defines(program: str, name: str) -> bool:
    """Whether a program defines a function, a class or a variable of that name."""
    quoted = re.escape(name)
    pattern = rf"^[ \t]*(?:(?:async[ \t]+)?def|class)[ \t]+{quoted}\b|^{quoted}[ \t]*[:=](?!=)"
    return re.search(pattern, program, re.MULTILINE) is not None


def names_of(tests: Asserts) -> tuple[str, ...]:
    """The names that a program must define for its tests."""
    return tests.entry_points or tuple(missing_names(tests)[0])


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
        tests = self.tests(task)
        program = self.source(task, program_of(final_content(messages), names_of(tests)))
        limits = Limits(self.seconds, unsafe=self.unsafe)
        verdict = verify(program, tests, shared_pool(), limits, self.reward)
        correct = verdict.total > 0 and verdict.passed == verdict.total
        detail = {
            "tests_passed": verdict.passed / max(1, verdict.total),
            "answers_too_slow": float(verdict.limit in ("time", "cpu")),
            "answers_too_large": float(verdict.limit in ("memory", "processes", "output")),
        }
        return Score(verdict.reward * well_formed, correct, well_formed, detail)
