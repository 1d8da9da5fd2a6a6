"""The tool `python`: runs code in a fresh sandbox within a deadline, and answers with what it prints.

How well the sandbox holds depends on the machine (`sandbox/levels.py`), so the tool asks before each call.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from ingot.envs.tools.tool import DEADLINE, LONGEST_RESULT, Tool, make_tool
from ingot.sandbox.run import Limits, Program, run

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


def python_tool(deadline: float = DEADLINE) -> Tool:
    """The tool, each call of which ends within `deadline` seconds."""

    async def python(code: str) -> str:
        return await asyncio.to_thread(run_python, code, deadline)  # the sandbox keeps the deadline

    return make_tool(python, schema=SCHEMA, deadline=deadline + GRACE, asks=True)


def run_python(code: str, deadline: float) -> str:
    """What the code prints, with the last line of a traceback if it fails."""
    command = (sys.executable, "-I", "-X", "utf8", "-c", NOTEBOOK.read_text(encoding="utf-8"))
    outcome = run(Program(command, stdin=code.encode("utf-8", "replace")), Limits(deadline))
    text = outcome.stdout[: 4 * LONGEST_RESULT + 1].decode("utf-8", "replace")
    match outcome.ended_by:
        case "time" | "cpu":
            return f"{text}error: stopped after {deadline:g} seconds"
        case "output":
            return f"{text}\nerror: stopped, it printed too much"
    if outcome.exit == 0:
        return text or "(nothing was printed)"
    printed, traceback, rest = text.rpartition("Traceback (most recent call last):\n")
    last = rest.strip().rsplit("\n", 1)[-1] if traceback else f"the process ended with {outcome.exit}\n{text}"
    return f"{printed}error: {last}"
