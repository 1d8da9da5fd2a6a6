"""The tool `python`: runs code in a fresh process, in an empty folder, within a deadline; says what it printed.

`python_worker.py` sets the limits. The code is the model's and runs as the user, so the tool asks before each call.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ingot.envs.tools.tool import DEADLINE, LONGEST_RESULT, Tool

WORKER = Path(__file__).with_name("python_worker.py")
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
    return Tool(SCHEMA, lambda arguments: run_python(arguments, deadline))


def run_python(arguments: dict[str, Any], deadline: float) -> str:
    """What the code prints, with the last line of a traceback if it fails."""
    code = arguments.get("code")
    if not isinstance(code, str) or len(arguments) != 1:
        return "error: give one argument, code, a string"
    with tempfile.TemporaryDirectory(prefix="ingot-python-", ignore_cleanup_errors=True) as folder:
        output = Path(folder) / ".output"  # a file and not a pipe: its size is limited, and reading it cannot hang
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", str(WORKER), str(math.ceil(deadline))],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={"PATH": os.defpath, "HOME": folder},
                start_new_session=True,
            )
            try:
                process.communicate(code.encode("utf-8", "replace"), timeout=deadline)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and with it what the code left behind (python_worker.py)
                process.wait(timeout=5)
        with output.open("rb") as source:
            text = source.read(4 * LONGEST_RESULT + 1).decode("utf-8", "replace")
    if not ended:
        return f"{text}error: stopped after {deadline:g} seconds"
    if process.returncode == 0:
        return text or "(nothing was printed)"
    printed, traceback, rest = text.rpartition("Traceback (most recent call last):\n")
    last = rest.strip().rsplit("\n", 1)[-1] if traceback else f"the process ended with {process.returncode}\n{text}"
    return f"{printed}error: {last}"
