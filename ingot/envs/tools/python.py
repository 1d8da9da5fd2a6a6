"""The tool `python`: runs code in a fresh sandbox within a deadline, and answers with what it prints.

A machine that cannot isolate it is refused when the tool is made, unless the user allows that (`unsafe`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ingot.envs.tools.tool import DEADLINE, LONGEST_RESULT, Tool, make_tool
from ingot.sandbox.program import Limits, Program
from ingot.sandbox.run import permitted, run

GRACE = 20.0  # seconds for the sandbox to start and to end
NOTEBOOK = Path(__file__).with_name("notebook.py")
SCHEMA: dict[str, Any] = {
    "name": "python",
    "description": "Run Python code in a new process; answers with what it prints. Nothing is kept between calls.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
        "additionalProperties": False,
    },
}


def python_tool(deadline: float = DEADLINE, *, unsafe: bool = False) -> Tool:
    """The tool, each call of which ends within `deadline` seconds."""
    permitted(Limits(deadline, unsafe=unsafe))

    async def python(code: str) -> str:
        return await asyncio.to_thread(run_python, code, deadline, unsafe=unsafe)  # the sandbox keeps the deadline

    return make_tool(python, schema=SCHEMA, deadline=deadline + GRACE, asks=True)


def run_python(code: str, deadline: float, *, unsafe: bool = False) -> str:
    """What the code prints, with the last line of a traceback if it fails."""
    program = Program(source=NOTEBOOK.read_text(encoding="utf-8"), stdin=code.encode("utf-8", "replace"))
    outcome = run(program, Limits(deadline, unsafe=unsafe))
    text = outcome.stdout[: 4 * LONGEST_RESULT + 1].decode("utf-8", "replace")
    match outcome.ended_by:
        case "time" | "cpu":
            return f"{text}error: stopped after {deadline:g} seconds"
        case "output":
            return f"{text}\nerror: stopped, it printed too much"
        case "memory":
            return f"{text}\nerror: stopped, it used too much memory"
        case "processes":
            return f"{text}\nerror: stopped, it started too many processes"
    if outcome.exit == 0:
        return text or "(nothing was printed)"
    printed, traceback, rest = text.rpartition("Traceback (most recent call last):\n")
    last = rest.strip().rsplit("\n", 1)[-1] if traceback else f"the process ended with {outcome.exit}\n{text}"
    return f"{printed}error: {last}"
