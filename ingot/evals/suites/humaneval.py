"""HumanEval (Chen et al. 2021, arXiv 2107.03374): Python functions from their signatures and docstrings.

A base model reads the prompt as it is, and the program is the prompt with what it writes up to the first line that begins
something new; nothing is stripped. A chat model is asked for the whole function in a block; with `prefill` its answer begins with
the block and the prompt, as in the LM evaluation harness's `humaneval_instruct`, which helps models that would chat instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import need
from ingot.envs.tasks._programs import names_of, program_of
from ingot.envs.tasks.humaneval import Humaneval as Environment
from ingot.envs.verifiers.code.tests import Asserts
from ingot.evals.bases.code_problems import CodeProblems
from ingot.evals.bases.generations import Item
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question

STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")
FENCE = "```"
ENVIRONMENT = Environment()


class Humaneval(CodeProblems):
    """Python functions from their docstrings, graded by hidden tests."""

    local: ClassVar[tuple[str, ...]] = ("humaneval/humaneval*.jsonl*", "humaneval/HumanEval*.jsonl*")
    hub: ClassVar[tuple[str, ...]] = ("hf:openai/openai_humaneval:test",)
    labels: ClassVar[Mapping[str, str]] = {"pass@1": "HumanEval, all tests passed"}

    prefill: bool = Field(False, description="begin a chat model's answer with the function's head, in a Python block")

    def stops(self, subject: Subject) -> tuple[str, ...]:
        if subject.form == "text":
            return STOPS
        return (FENCE,) if self.prefill else ()

    def items(self, subject: Subject) -> Sequence[Item]:
        return [
            Item(
                need(row, "task_id", str, place),
                self.question(row["prompt"], task.question, subject),
                row["canonical_solution"],
                {"task": task, "continues": subject.form == "text" or self.prefill},
            )
            for place, row in self.rows(subject)
            for task in (ENVIRONMENT.read(row, place),)
        ]

    def question(self, prompt: str, asked: str, subject: Subject) -> Question:
        """The prompt itself, or a question about it."""
        if subject.form == "text":
            return Question(prompt, delimiter="")
        return Question(asked, start=f"{FENCE}python\n{prompt}" if self.prefill else "")

    def program(self, item: Item, answer: str) -> str:
        if item.data["continues"]:
            return str(item.data["task"].data["prompt"] + answer)
        task = item.data["task"]
        return ENVIRONMENT.source(task, program_of(answer, names_of(ENVIRONMENT.tests(task))))

    def tests(self, item: Item) -> Asserts:
        return ENVIRONMENT.tests(item.data["task"])
