"""Requests with instructions that a rule can check: generated ones, or rows of IFEval's form from a file.

    {"prompt": "Write …", "instruction_id_list": ["count:numbers"], "kwargs": [{"N": 3}]}

The reward is 1 if every instruction is followed, strictly; `share` pays the part that is followed, a smoother signal at the
beginning. IFEval's dev rows measure, they are not to be trained on.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._instruction_prompts import draw_request
from ingot.envs.verifiers.instructions.follow import follow
from ingot.envs.verifiers.instructions.instruction import Instruction, find_instruction
from ingot.envs.verify import final_content, format_ok
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError

Asked = tuple[tuple[str, dict[str, Any]], ...]
ROW = '{"prompt": …, "instruction_id_list": […], "kwargs": […]}'


class Instructions(Environment):
    """Write about something under instructions on words, layout, case and length."""

    label: ClassVar[str] = "instructions"
    file: str | None = Field(
        None, description="JSONL of prompt, instruction_id_list and kwargs (null: generated requests)"
    )
    most: int = Field(3, ge=1, le=4, description="a generated request has one to so many instructions")
    share: bool = Field(
        False, description="reward the share of instructions that are followed, instead of all or nothing"
    )
    thinking: bool = Field(False, description="think before the answer")

    def draw(self, rng: random.Random) -> Task:
        if self.file is not None:
            prompt, asked = rng.choice(rows(Path(self.file)))
            return self._task(prompt, asked, None, "")
        request = draw_request(rng, self.most)
        fact = f"{request.topic} {sorted(map(str, request.instructions))}"
        return self._task(request.question, request.instructions, fact, request.solution)

    def solution(self, task: Task) -> list[Message]:
        """The worked answer of a generated request; rows from a file have none."""
        if not task.answer:
            raise DataError(
                "a row of instructions comes without a solution",
                place=str(self.file),
                fix="leave `file` empty for stages that learn from solutions",
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


@lru_cache(maxsize=4)
def rows(path: Path) -> tuple[tuple[str, Asked], ...]:
    """The prompts of a file with their instructions, all of them checked; `.gz` is unpacked."""
    if not path.is_file():
        raise DataError("there is no such file", place=str(path), fix="look at `file` of the task kind instructions")
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = enumerate(data.split(b"\n"), start=1)
    return tuple(_read_row(line, f"{path}:{number}") for number, line in lines if line.strip())


def _read_row(line: bytes, place: str) -> tuple[str, Asked]:
    try:
        row = json.loads(line)
        prompt, ids, kwargs = row["prompt"], row["instruction_id_list"], row["kwargs"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not a row of instructions: {error!r}", place=place, fix=f"write {ROW}") from error
    if (
        not isinstance(prompt, str)
        or not isinstance(ids, list)
        or not isinstance(kwargs, list)
        or len(ids) != len(kwargs)
    ):
        raise DataError("not a prompt with as many kwargs as instructions", place=place, fix=f"write {ROW}")
    return prompt, tuple(
        (id, dict(find_instruction(id, each, place).kwargs)) for id, each in zip(ids, kwargs, strict=True)
    )
