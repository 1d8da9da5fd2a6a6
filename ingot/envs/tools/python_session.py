"""The tool `python` of an environment: a Python session in a sandbox, which lives as long as its episode.

class Mine(Environment):
    tools = (PYTHON_SESSION,)
    def setup(self, task): return open_session()
    def teardown(self, state): state.close()
"""

from __future__ import annotations

import asyncio

from ingot.envs.errors import EnvironmentFailed
from ingot.envs.tools.tool import make_tool
from ingot.sandbox.notebook import Notebook
from ingot.sandbox.program import Limits
from ingot.sandbox.session import SessionEnded
from ingot.sandbox.worker import SandboxError

SECONDS = 10.0  # of one call
GRACE = 30.0  # for a session that does not answer to be killed
MEMORY = 2**29


def open_session(seconds: float = SECONDS, *, unsafe: bool = False) -> Notebook:
    """A session; a sandbox that does not start is a failure of the environment."""
    try:
        return Notebook(Limits(seconds, memory=MEMORY, unsafe=unsafe))
    except SandboxError as error:
        raise EnvironmentFailed(error.problem, place=error.place, fix=error.fix, part="sandbox") from error


async def python(state: Notebook, code: str) -> str:
    """Run Python code; answers with what it prints and the value of its last line. Names are kept for the next call.

    Args:
        code: the code
    """
    try:
        answer = await asyncio.to_thread(state.run, code)
    except SessionEnded as error:
        return f"error: {error.problem}"
    except SandboxError as error:
        raise EnvironmentFailed(error.problem, place=error.place, fix=error.fix, part="sandbox") from error
    if answer.stopped:
        return f"{answer.output}error: stopped ({answer.stopped})"
    return answer.output or "(nothing was printed)"


PYTHON_SESSION = make_tool(python, deadline=SECONDS + GRACE)
