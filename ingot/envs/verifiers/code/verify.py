"""Verifies programs: runs what a model wrote against tests that it cannot read.

    verdict = verify(source, Asserts("assert add(1, 2) == 3"), pool, Limits(seconds=10))
    verdict.reward, verdict.problem

Three kinds of tests (`tests.py`):

    Calls          a function, arguments and expected values. The function runs in a sandbox; expected values stay outside, and
                   what comes back as data is compared there.
    InputOutput    a whole program in any language of `programs.py`, what it reads and what it must print.
    Asserts        tests that are Python code, as HumanEval's `check(candidate)` and MBPP's asserts. The program runs in one
                   sandbox, the tests in another that talk to it: what an assert compares is plain data (`checks.py`).

What holds: a program cannot read its tests, and no reward comes from how it exits, what it prints, what it does to its own
interpreter, or objects that claim to be equal to everything. What does not hold: a program sees the arguments it is called
with, so tests whose right answer is easy to guess can be guessed; a test that asks the program whether it is right (an assert
on `program.check()`) believes it.

A program that is wrong, too slow or too large has reward 0. Where the verifier or its sandbox fails, or the tests themselves
cannot run, `VerifierError` is raised: that says nothing about the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ingot.envs.verifiers.code.asserts import verify_asserts
from ingot.envs.verifiers.code.calls import verify_calls
from ingot.envs.verifiers.code.programs import verify_programs
from ingot.envs.verifiers.code.tests import OVER, Asserts, Calls, InputOutput
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits

Reward = Literal["all", "share"]


@dataclass(frozen=True)
class Verdict:
    """What came of the tests: `reward` in [0, 1], how many passed, and the first thing that was wrong."""

    reward: float
    passed: int
    total: int
    problem: str = ""

    @property
    def limit(self) -> str:
        """The limit that the program was over, if that was it: time, cpu, memory, processes or output."""
        return self.problem.rpartition(OVER)[2] if OVER in self.problem else ""


def verify(
    source: str, tests: Calls | InputOutput | Asserts, pool: Pool, limits: Limits, reward: Reward = "all"
) -> Verdict:
    """Run a program against its tests. `reward`: 1 if all pass and else 0, or the share that passes."""
    match tests:
        case Calls():
            passed, total, problem = verify_calls(source, tests, pool, limits)
        case InputOutput():
            passed, total, problem = verify_programs(source, tests, pool, limits, stop_early=reward == "all")
        case Asserts():
            passed, total, problem = verify_asserts(source, tests, pool, limits, share=reward == "share")
    share = passed / total if total else 0.0
    return Verdict(share if reward == "share" else float(passed == total > 0), passed, total, problem)
