"""HumanEval (Chen et al. 2021, arXiv 2107.03374): complete a Python function from its signature and docstring.

Rows: {"task_id", "prompt", "entry_point", "canonical_solution", "test"}, where `test` defines check(candidate). A reply may give
the whole function, or only what follows the prompt. It measures; it is not to be trained on.
"""

from __future__ import annotations

from typing import ClassVar

from ingot.envs.rows import Row, need
from ingot.envs.task import Task
from ingot.envs.tasks._programs import Programs, defines
from ingot.envs.verifiers.code.tests import Asserts

ASK = "Complete this Python function. Answer with the whole function in a Python code block.\n\n```python\n{}\n```"


class Humaneval(Programs):
    """Python functions from their docstrings, graded by hidden tests."""

    label: ClassVar[str] = "HumanEval"

    def read(self, row: Row, place: str) -> Task:
        prompt, name = need(row, "prompt", str, place), need(row, "entry_point", str, place)
        solution, test = need(row, "canonical_solution", str, place), need(row, "test", str, place)
        data = {"prompt": prompt, "entry_point": name, "test": test}
        return self.ask(ASK.format(prompt.rstrip()), prompt + solution, fact=prompt, thinking=self.thinking, data=data)

    def source(self, task: Task, program: str) -> str:
        prompt, name = task.data["prompt"], task.data["entry_point"]
        return f"{prompt.partition(f'def {name}')[0]}\n{program}" if defines(program, name) else prompt + program

    def tests(self, task: Task) -> Asserts:
        name = task.data["entry_point"]
        return Asserts(f"{task.data['test']}\n\ncheck({name})", prelude=task.data["prompt"], entry_points=(name,))
