"""Runs one program within limits and reports how it ended.

    outcome = run(Program((sys.executable, "-I", "-c", "print(6 * 7)")), Limits(seconds=5))
    outcome.stdout, outcome.exit, outcome.ended_by, outcome.isolation

What holds at every level (levels.py has the levels and what each adds):
- The program starts in an empty folder of its own, its HOME, and sees the environment it is given and no other.
- Processor time, memory, size of a file and open files are limited; more output than `limits.output`, or more wall-clock time
  than `limits.seconds`, ends it. Reading its output never blocks and never holds more than that.
- When `run` returns, the program and its process group are dead. With bubblewrap everything it ever started is dead; without,
  a child that left the group (setsid) lives on.
With bubblewrap the number of processes, and the bytes and number of its files, are limited too.

`run` starts a sandbox for one program; `pool.py` keeps sandboxes for many.
"""

from __future__ import annotations

from functools import cache

from ingot.sandbox.levels import Isolation, Level, levels
from ingot.sandbox.program import Limits, Outcome, Program
from ingot.sandbox.running import run_on
from ingot.sandbox.worker import SandboxError, SandboxWorker
from ingot.workspace.errors import IngotError

PROBE_SECONDS = 20.0
INSTALL = "install bubblewrap (Debian: apt install bubblewrap) and allow user namespaces"
UNSAFE = "or say that the program may do all that you can: --unsafe, `unsafe: true` in a recipe, Limits(unsafe=True)"


def run(program: Program, limits: Limits, isolation: Isolation | None = None) -> Outcome:
    """Run a program in a sandbox of its own."""
    with SandboxWorker(permitted(limits, isolation)) as worker:
        return run_on(worker, program, limits)


def isolation() -> Isolation:
    """The strongest level that works on this machine."""
    return _level(None).isolation


def permitted(limits: Limits, wanted: Isolation | None = None) -> Level:
    """The level at which to run a program with these limits: never one without isolation unless they allow it."""
    level = _level(wanted)
    if level.isolation == "process" and not limits.unsafe:
        raise IngotError("programs cannot be isolated on this machine", place="sandbox", fix=f"{INSTALL}; {UNSAFE}")
    return level


@cache
def _level(wanted: Isolation | None) -> Level:
    """The strongest level that works, or the one that is wanted."""
    for level in levels():
        if wanted in (None, level.isolation) and (level.isolation == "process" or _works(level)):
            return level
    raise IngotError(f"programs cannot be isolated by {wanted} here", place="sandbox", fix=INSTALL)


def _works(level: Level) -> bool:
    try:
        with SandboxWorker(level) as worker:
            return run_on(worker, Program(source="print(6 * 7)"), Limits(PROBE_SECONDS)).stdout == b"42\n"
    except SandboxError:
        return False
