"""Run a program that a model wrote and take what it prints (`sandbox/` keeps it away from everything else)."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from ingot.sandbox.run import Limits, Program, run

LARGEST_OUTPUT, LARGEST_FILE = 10_000, 1_000_000
WALL_FACTOR = 2.0  # wall-clock seconds a processor second: the machine may be busy
START_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """What a program printed, or why it did not end well."""

    output: str
    problem: str = ""


def run_program(program: str, seconds: float, memory: int) -> Answer:
    """Run Python source; its standard output if it ended with status 0 in time."""
    command = (sys.executable, "-I", "-S", "-B", "program.py")
    limits = Limits(
        seconds=WALL_FACTOR * seconds + START_SECONDS,
        cpu=int(seconds),
        memory=memory,
        file=LARGEST_FILE,
        output=LARGEST_OUTPUT,
    )
    outcome = run(Program(command, files={"program.py": program}), limits)
    match outcome.ended_by:
        case "time" | "cpu":
            return Answer("", "took too long")
        case "output":
            return Answer("", "printed too much")
    if outcome.exit != 0:
        last = outcome.stderr.decode("utf-8", "replace").strip().split("\n")[-1][:200]
        return Answer("", f"ended with status {outcome.exit}: {last}")
    return Answer(outcome.stdout.decode("utf-8", "replace").strip())
