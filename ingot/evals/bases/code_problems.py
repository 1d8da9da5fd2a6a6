"""Suites in which the model writes programs, which are run in the sandbox against tests that they cannot read.

pass@1 is the share of programs that pass all tests of their problem; with `samples: n` of each, pass@n is there too. A base
model goes on with a text, and its program is what it wrote up to the first stop; a chat model is asked, and its program is the
block of its reply that defines what is tested (`program_of`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from pydantic import Field

from ingot.envs.verifiers.code.tests import Asserts, Calls, InputOutput
from ingot.envs.verifiers.code.verify import verify
from ingot.evals.bases.generations import GeneratedSuite, Grade, Item
from ingot.sandbox.pool import shared_pool
from ingot.sandbox.program import Limits

Tests = Asserts | Calls | InputOutput


class CodeProblems(GeneratedSuite):
    """Programs, graded by tests."""

    graders: ClassVar[int] = 8  # they wait for sandboxes, of which there are as many as processors

    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer at most")
    seconds: float = Field(10.0, gt=0, description="time for all tests of a program")
    unsafe: bool = Field(False, description="run programs also where nothing isolates them from your files")

    @abstractmethod
    def program(self, item: Item, answer: str) -> str:
        """The program in an answer."""

    @abstractmethod
    def tests(self, item: Item) -> Tests:
        """What it must pass."""

    def grade(self, item: Item, answer: str) -> Grade:
        return Grade({"pass@1": float(self.passes(self.program(item, answer), self.tests(item)))})

    def passes(self, program: str, tests: Tests) -> bool:
        """Whether a program passes all tests."""
        verdict = verify(program, tests, shared_pool(), Limits(self.seconds, unsafe=self.unsafe))
        return verdict.passed == verdict.total > 0
