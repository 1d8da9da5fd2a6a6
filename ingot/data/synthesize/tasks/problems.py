"""Asks for problems with a program for an answer: accepted only if running the program prints what the model says the answer is.

An answer must have three parts, told by their headings:

    Problem:   the question in words
    Program:   ```python … ``` that prints the result
    Answer:    the result

A wrong calculation, a program that does not run, a program that prints something else: refused, with the reason counted.
Programs run in `sandbox/`, which isolates them from everything else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from ingot.data.synthesize.checks import cleaned
from ingot.data.synthesize.sample import Refused, SourcePassage, WriterRequest
from ingot.data.synthesize.task import PassageTask
from ingot.sandbox.program import Limits, Program
from ingot.sandbox.run import run

LARGEST_OUTPUT, LARGEST_FILE = 10_000, 1_000_000
WALL_FACTOR = 2.0  # wall-clock seconds a processor second: the machine may be busy
START_SECONDS = 5.0


@dataclass(frozen=True)
class ProgramOutput:
    """What a program printed, or why it did not end well."""

    output: str
    problem: str = ""


def run_program(program: str, seconds: float, memory: int, *, unsafe: bool = False) -> ProgramOutput:
    """Run Python source; its standard output if it ended with status 0 in time."""
    limits = Limits(
        seconds=WALL_FACTOR * seconds + START_SECONDS,
        cpu=int(seconds),
        memory=memory,
        file=LARGEST_FILE,
        output=LARGEST_OUTPUT,
        unsafe=unsafe,
    )
    outcome = run(Program(source=program), limits)
    match outcome.ended_by:
        case "time" | "cpu":
            return ProgramOutput("", "took too long")
        case "output":
            return ProgramOutput("", "printed too much")
        case "memory" | "processes":
            return ProgramOutput("", f"used too much: {outcome.ended_by}")
    if outcome.exit != 0:
        last = outcome.stderr.decode("utf-8", "replace").strip().split("\n")[-1][:200]
        return ProgramOutput("", f"ended with status {outcome.exit}: {last}")
    return ProgramOutput(outcome.stdout.decode("utf-8", "replace").strip())


PARTS = re.compile(
    r"Problem:\s*(?P<problem>.+?)\s*Program:\s*```(?:python)?\s*\n(?P<program>.+?)```\s*Answer:\s*(?P<answer>.+?)\s*\Z",
    re.DOTALL | re.IGNORECASE,
)
CLOSE = 1e-6


class ProblemsTask(PassageTask):
    """A problem inspired by a passage, with a program whose printed result is the answer; accepted if running it agrees."""

    verified: ClassVar[str] = "ran"
    seconds: float = Field(default=5.0, gt=0, description="most processor seconds of the program")
    memory: int = Field(default=512_000_000, gt=0, description="most bytes of memory of the program")
    unsafe: bool = Field(default=False, description="run programs also where nothing isolates them from your files")

    def ask(self, passage: SourcePassage, number: int) -> list[WriterRequest]:
        prompt = (
            "Invent one problem that needs calculation and is set in the world of the text below; it must be solvable without "
            "the text. Answer in exactly this form:\n\nProblem: the question, with all the numbers it needs\nProgram:\n"
            "```python\na short Python program without input that prints the result and nothing else\n```\nAnswer: the result\n\n"
            f"Text:\n{passage.text}"
        )
        return [self.request(passage, prompt)]

    def check(self, request: WriterRequest, answer: str) -> str:
        """The document of a problem whose program agrees with its answer."""
        parts = PARTS.search(cleaned(answer))
        if parts is None:
            raise Refused("not in the form")
        outcome = run_program(parts["program"], self.seconds, self.memory, unsafe=self.unsafe)
        if outcome.problem:
            raise Refused("took too long" if "long" in outcome.problem else "program failed")
        if not same(outcome.output, parts["answer"]):
            raise Refused("program disagrees")
        return (
            f"{parts['problem'].strip()}\n\nA program that solves it:\n\n```python\n{parts['program'].rstrip()}\n```\n\n"
            f"It prints {outcome.output}, which is the answer."
        )


def same(printed: str, stated: str) -> bool:
    """Whether two results are equal: as text, or as numbers up to rounding in the last digits."""
    plain = stated.strip().strip("`*.$ ").replace(",", "")
    if printed.strip() == plain:
        return True
    try:
        return math.isclose(float(printed.replace(",", "")), float(plain), rel_tol=CLOSE)
    except ValueError:
        return False
