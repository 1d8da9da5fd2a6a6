"""Requests with instructions that a rule can check: generated ones, or rows of IFEval's form from a file.

    {"prompt": "Write …", "instruction_id_list": ["count:numbers"], "kwargs": [{"N": 3}]}

The reward is 1 if every instruction is followed, strictly; `share` pays the part that is followed, a smoother signal at the
beginning. IFEval's dev rows measure, they are not to be trained on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.episode import Score
from ingot.envs.files import FileEnvironment
from ingot.envs.rows import Row, need
from ingot.envs.task import Split, Task
from ingot.envs.tasks._instruction_prompts import draw_request
from ingot.envs.verifiers.instructions.follow import follow
from ingot.envs.verifiers.instructions.instruction import Instruction, find_instruction
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

Asked = tuple[tuple[str, dict[str, Any]], ...]
ROW = '{"prompt": …, "instruction_id_list": […], "kwargs": […]}'


class Instructions(FileEnvironment):
    """Write about something under instructions on words, layout, case and length."""

    label: ClassVar[str] = "instructions"
    most: int = Field(3, ge=1, le=4, description="a generated request has one to so many instructions")
    share: bool = Field(
        False, description="reward the share of instructions that are followed, instead of all or nothing"
    )
    thinking: bool = Field(False, description="think before the answer")

    def rows(self, split: Split) -> Sequence[Task] | None:
        """Those of the files; without any, requests are generated."""
        return super().rows(split) if self.train or self.test or self.files else None

    def read(self, row: Row, place: str) -> Task:
        prompt, ids = need(row, "prompt", str, place), need(row, "instruction_id_list", list, place)
        kwargs = need(row, "kwargs", list, place)
        if len(ids) != len(kwargs):
            raise DataError("there are not as many kwargs as instructions", place=place, fix=f"write {ROW}")
        found = [find_instruction(id, each, place) for id, each in zip(ids, kwargs, strict=True)]
        asked = tuple((id, dict(each.kwargs)) for id, each in zip(ids, found, strict=True))
        return self._task(prompt, asked, None, "")

    def draw(self, rng: random.Random) -> Task:
        request = draw_request(rng, self.most)
        fact = f"{request.topic} {sorted(map(str, request.instructions))}"
        return self._task(request.question, request.instructions, fact, request.solution)

    def solution(self, task: Task) -> list[Message]:
        """The worked answer of a generated request; rows from a file have none."""
        if not task.answer:
            raise DataError(
                "a row of instructions comes without a solution",
                place=task.id,
                fix="give no files for stages that learn from solutions",
            )
        return [Message(role="assistant", content=task.answer, thinking="" if task.thinking else None)]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """The answer with one of its instructions broken: by a small change if one does, else by a far too short or long one."""
        (answer,) = self.solution(task)
        text, given = answer.content, " ".join(str(value) for _, kwargs in task.asked for value in kwargs.values())
        small = [f"{text}, and so on", text.swapcase(), text[: len(text) * 2 // 3], f"Sure!\n{text}\nDone."]
        rng.shuffle(small)
        large = ["No, not now.", f"{text} {f'{given} ' * 10}{'That is FAR too long. ' * 100}"]
        checks = instructions_of(task)
        broken = next(content for content in [*small, *large] if not all(check.follows(content) for check in checks))
        return [replace(answer, content=broken)]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        followed = follow(final_content(messages), instructions_of(task))
        well_formed, share = format_ok(messages, task.thinking), sum(followed.strict) / len(followed.strict)
        correct = all(followed.strict)
        reward = float(well_formed) * (share if self.share else float(correct))
        return Score(reward, correct, well_formed, {"followed": share, "loosely_right": float(all(followed.loose))})

    def _task(self, question: str, asked: Asked, fact: str | None, solution: str) -> Task:
        return self.ask(question, solution, fact=fact, asked=asked, thinking=self.thinking)


def instructions_of(task: Task) -> list[Instruction]:
    """The instructions that a task asks for."""
    return [find_instruction(id, kwargs) for id, kwargs in task.asked]
