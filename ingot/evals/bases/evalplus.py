"""EvalPlus (Liu et al. 2023, arXiv 2305.01210): programs against many more inputs, compared with a reference solution.

Rows, as EvalPlus publishes them: {"task_id", "prompt", "entry_point", "canonical_solution", "base_input", "plus_input", "atol"},
an input being the list of arguments of one call. The reference runs beside the tests, in their sandbox, and a program must
return what it returns (evalplus_compare.py). Two metrics: `pass@1` for all inputs, `base` for those of the original set only.

All inputs together have `seconds`; EvalPlus gives each one four times what the reference needs, and a second at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from ingot.envs.rows import Row, need
from ingot.envs.tasks._programs import defines, program_of
from ingot.envs.verifiers.code.tests import Asserts
from ingot.evals.bases import evalplus_compare
from ingot.evals.bases.code_problems import CodeProblems
from ingot.evals.bases.generations import Grade, Item
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question

COMPARE = Path(evalplus_compare.__file__)
REFERENCE = """
import copy
inf, nan = math.inf, math.nan
_names = {{}}
exec({source!r}, _names)  # in a world of its own: there the function is the reference, here it is the program
_reference = _names[{entry!r}]
"""
TESTS = """
for _arguments in {inputs!r}:
    _given = {entry}(*copy.deepcopy(_arguments))
    assert same({entry!r}, _arguments, _given, _reference(*copy.deepcopy(_arguments)), {tolerance!r})
"""
ASK = "Write this Python function. Answer with the whole function in a Python code block.\n\n```python\n{}\n```"
STOPS = ("\nif __name__", "\ndef main(", "\nprint(")


class EvalPlus(CodeProblems):
    """Functions against the reference's outputs on many inputs."""

    more_stops: ClassVar[tuple[str, ...]] = ()

    seconds: float = Field(30.0, gt=0, description="time for all inputs of a program, with the reference's own")

    def arguments(self, row: Row, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs of a row as Python has them: JSON has no tuples."""
        return inputs

    def stops(self, subject: Subject) -> tuple[str, ...]:
        return STOPS + self.more_stops if subject.form == "text" else ()

    def items(self, subject: Subject) -> Sequence[Item]:
        return [self._item(row, place, subject.form == "text") for place, row in self.rows(subject)]

    def _item(self, row: Row, place: str, text: bool) -> Item:
        prompt, solution = need(row, "prompt", str, place), need(row, "canonical_solution", str, place)
        question = Question(prompt, delimiter="") if text else Question(ASK.format(prompt.rstrip()))
        entry = need(row, "entry_point", str, place)
        inputs = {name: need(row, f"{name}_input", list, place) for name in ("base", "plus")}
        data = {"row": row, "entry": entry, "prompt": prompt, "text": text, **inputs}
        return Item(need(row, "task_id", str, place), question, solution, data)

    def program(self, item: Item, answer: str) -> str:
        prompt, entry = item.data["prompt"], item.data["entry"]
        if item.data["text"]:
            return str(prompt + answer)
        program = program_of(answer, (entry,))
        return f"{prompt.partition(f'def {entry}')[0]}\n{program}" if defines(program, entry) else prompt + program

    def tests(self, item: Item) -> Asserts:
        return self._tests(item, "base")

    def grade(self, item: Item, answer: str) -> Grade:
        program = self.program(item, answer)
        base = self.passes(program, self._tests(item, "base"))
        both = base and (not item.data["plus"] or self.passes(program, self._tests(item, "plus")))
        return Grade({"pass@1": float(both), "base": float(base)})

    def _tests(self, item: Item, part: str) -> Asserts:
        row, entry = item.data["row"], item.data["entry"]
        reference = REFERENCE.format(source=item.data["prompt"] + item.expected, entry=entry)
        inputs = list(self.arguments(row, item.data[part]))
        tests = TESTS.format(inputs=inputs, entry=entry, tolerance=row.get("atol") or 0)
        return Asserts(tests, COMPARE.read_text(encoding="utf-8") + reference, (entry,))


def labels(name: str) -> Mapping[str, str]:
    """Of its two metrics."""
    return {"pass@1": f"{name}, all inputs", "base": f"{name}, inputs of the original set"}
