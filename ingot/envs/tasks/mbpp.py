"""MBPP (Austin et al. 2021, arXiv 2108.07732): short Python functions from a sentence and examples.

Rows: {"task_id", "text", "code", "test_list", "test_setup_code"}, with a `split` column if one file holds several. The usual
prompt shows all tests; here so many asserts are shown (the name and form of the function must be known), and all are run.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.envs.task import Task
from ingot.envs.tasks._programs import Programs
from ingot.envs.verifiers.code.tests import Asserts


class Mbpp(Programs):
    """Short Python functions from a sentence and an example, graded by asserts."""

    label: ClassVar[str] = "MBPP"
    shown_tests: int = Field(1, ge=0, description="asserts that the prompt shows; a policy could learn them by heart")
    row_split: str = Field("", description="only rows whose column `split` is this: train, test, validation or prompt")

    def read(self, row: Row, place: str) -> Task | None:
        if self.row_split and row.get("split") != self.row_split:
            return None
        text, tests = need(row, "text", str, place), need(row, "test_list", list, place)
        code = need(row, "code", str, place).replace("\r\n", "\n")
        shown = "\n".join(tests[: self.shown_tests])
        question = (
            f"{text.strip()}\nYour code should pass tests such as:\n\n{shown}\n\nAnswer with a Python code block."
        )
        data = {"tests": tests, "setup": str(row.get("test_setup_code") or "")}
        return self.ask(question, code, fact=text, thinking=self.thinking, data=data)

    def tests(self, task: Task) -> Asserts:
        return Asserts("\n".join(task.data["tests"]), prelude=task.data["setup"])
