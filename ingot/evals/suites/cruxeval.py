"""CRUXEval (Gu et al. 2024, arXiv 2401.03065): what does this function return; or with which input does it return this?

    direction: output   the answer is right if it is the same Python literal; nothing that the model writes is run
    direction: input    any call of f is right that returns the output: assert f(predicted) == output, run in the sandbox

The call is what stands before the first ==, as its authors have it, and it must be one of f: what they paste into an assertion,
`f(1) or True`, would be right for any output. The words of the prompts are ours.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.rows import Row, need
from ingot.envs.verifiers.code.tests import Asserts
from ingot.envs.verifiers.code.verify import verify
from ingot.evals.bases.generations import GeneratedSuite, Grade, Item
from ingot.evals.bases.suite import Subject
from ingot.evals.engine.request import Question
from ingot.sandbox.pool import shared_pool
from ingot.sandbox.program import Limits
from ingot.workspace.python_source import parse_python

OUTPUT = (
    "Each task shows a Python function and an assertion on a call of it. Say what the call returns: the full assertion with a "
    "literal in place of ??, between [ANSWER] and [/ANSWER]. Write no expression and no call, and nothing else.\n\n"
)
INPUT = (
    "Each task shows a Python function f and an assertion on what a call of it returns. Find arguments with which it holds; "
    "there may be several, give one: the full assertion with the arguments in place of ??, between [ANSWER] and [/ANSWER].\n\n"
)
OUTPUT_EXAMPLES = (
    ("def f(n):\n    return n\nassert f(17) == ??", "assert f(17) == 17"),
    ('def f(s):\n    return s + "a"\nassert f("x9j") == ??', 'assert f("x9j") == "x9ja"'),
)
INPUT_EXAMPLES = (
    ("def f(n):\n    return n + 1\nassert f(??) == 17", "assert f(16) == 17"),
    ('def f(s, t):\n    return s + t\nassert f(??) == "seaside"', 'assert f("sea", "side") == "seaside"'),
)
BEGIN, END = "[ANSWER]", "[/ANSWER]"
NO_LITERAL = object()


class Cruxeval(GeneratedSuite):
    """CRUXEval: what a Python function returns, or with which input it returns that."""

    local: ClassVar[tuple[str, ...]] = ("cruxeval/*.jsonl*",)
    hub: ClassVar[tuple[str, ...]] = ("hf:cruxeval-org/cruxeval:test",)
    labels: ClassVar[Mapping[str, str]] = {
        "output": "CRUXEval, output predicted",
        "input": "CRUXEval, input predicted",
    }
    graders: ClassVar[int] = 8  # they wait for sandboxes

    direction: Literal["output", "input"] = Field("output", description="what is predicted")
    seconds: float = Field(3.0, gt=0, description="time for a call with a predicted input")
    unsafe: bool = Field(False, description="run predicted inputs also where nothing isolates them from your files")

    @model_validator(mode="after")
    def _runs_something(self) -> Self:
        given = self.chosen("seconds", "unsafe")
        if self.direction == "output" and given:
            raise ValueError(f"{', '.join(given)}: only with direction: input, where calls are run")
        return self

    def items(self, subject: Subject) -> Sequence[Item]:
        return [self._item(row, place) for place, row in self.rows(subject)]

    def stops(self, subject: Subject) -> tuple[str, ...]:
        return (END,)

    def grade(self, item: Item, answer: str) -> Grade:
        if self.direction == "output":
            return Grade({"output": float(same_literal(answer, item.expected))})
        return Grade({"input": float(self._holds(item, answer))})

    def _item(self, row: Row, place: str) -> Item:
        code, given, returned = (need(row, column, str, place) for column in ("code", "input", "output"))
        backwards = self.direction == "input"
        task = f"{code}\nassert f(??) == {returned}" if backwards else f"{code}\nassert f({given}) == ??"
        examples = INPUT_EXAMPLES if backwards else OUTPUT_EXAMPLES
        prompt = Question(
            _framed(task),
            shots=tuple((_framed(text), f"{answer}\n{END}") for text, answer in examples),
            description=INPUT if backwards else OUTPUT,
            delimiter="",
        )
        return Item(str(row.get("id", place)), prompt, returned, {"code": code})

    def _holds(self, item: Item, answer: str) -> bool:
        """Whether f returns the output with the arguments of the answer."""
        call = predicted_call(answer)
        if call is None:
            return False
        program = f"{item.data['code']}\n\ndef predicted():\n    return {call}\n"
        tests = Asserts(f"assert predicted() == {item.expected}")
        verdict = verify(program, tests, shared_pool(), Limits(self.seconds, unsafe=self.unsafe))
        return verdict.passed == verdict.total > 0


def _framed(task: str) -> str:
    return f"[PYTHON]\n{task}\n[/PYTHON]\n{BEGIN}\n"


def _answer(written: str) -> str:
    return written.partition(END)[0].rpartition(BEGIN)[2].strip()


def predicted_call(written: str) -> str | None:
    """The call of f in an answer: of its assertion, or the answer itself."""
    text = _answer(written)
    before = text.partition("==")[0]
    for form in (text, before.partition("assert")[2] or before):  # the second: prose after the assertion
        try:
            statement = next(iter(parse_python(form.strip()).body), None)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        value = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
        value = value.left if isinstance(value, ast.Compare) and isinstance(value.ops[0], ast.Eq) else value
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "f":
            return ast.unparse(value)
    return None


def same_literal(written: str, expected: str) -> bool:
    """Whether the answer is the expected literal: of the same type and value, also inside."""
    found = literal(_answer(written))
    return found is not NO_LITERAL and _typed(found) == _typed(literal(expected))


def literal(text: str) -> Any:
    """The literal that a text is, or that its assertion compares with."""
    try:
        (statement,) = parse_python(text).body
        value = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
        if isinstance(value, ast.Compare) and isinstance(value.ops[-1], ast.Eq):
            value = value.comparators[-1]
        return ast.literal_eval(value) if isinstance(value, ast.expr) else NO_LITERAL
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return NO_LITERAL


def _typed(value: Any) -> Any:
    """A value in which 1, 1.0 and True differ."""
    if isinstance(value, list | tuple):
        return type(value), [_typed(each) for each in value]
    if isinstance(value, dict):
        return dict, {(type(key), key): _typed(each) for key, each in value.items()}
    return type(value), value
