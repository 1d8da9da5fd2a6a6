"""Where nothing isolates, a model's code is refused everywhere, and runs where the user says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ingot.cli.tools import choose_tools
from ingot.data.synthesize.sample import SourcePassage, WriterRequest
from ingot.data.synthesize.tasks.problems import ProblemsTask, run_program
from ingot.envs.tools.python import python_tool
from ingot.envs.tools.tool import call_tool
from ingot.envs.verifiers.code.tests import Asserts, Calls, FunctionCall
from ingot.envs.verifiers.code.verify import verify
from ingot.sandbox import run as module
from ingot.sandbox.levels import Level
from ingot.sandbox.notebook import Notebook
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits, Program
from ingot.sandbox.shell import Shell
from ingot.tokens.chat import ToolCall
from ingot.workspace.errors import IngotError


@pytest.fixture(autouse=True)
def nothing_isolates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "levels", lambda: [Level("bubblewrap", ("false",)), Level("process")])
    module._level.cache_clear()
    yield
    module._level.cache_clear()


def in_pool(limits: Limits) -> str:
    with Pool(2) as pool:
        assert verify("def f(): return 1", Calls("f", [FunctionCall([], 1)]), pool, limits).reward == 1.0
        assert verify("def f(): return 1", Asserts("assert f() == 1"), pool, limits).reward == 1.0
        return pool.run(Program(source="print(6 * 7)"), limits).stdout.decode()


def in_shell(limits: Limits) -> str:
    with Shell(limits) as shell:
        return shell.run("echo $((6 * 7))").output


def in_notebook(limits: Limits) -> str:
    with Notebook(limits) as notebook:
        return notebook.run("6 * 7").output


WAYS: dict[str, Callable[[bool], str]] = {
    "run": lambda unsafe: module.run(Program(source="print(6 * 7)"), Limits(20.0, unsafe=unsafe)).stdout.decode(),
    "pool and verifier": lambda unsafe: in_pool(Limits(20.0, unsafe=unsafe)),
    "shell": lambda unsafe: in_shell(Limits(20.0, unsafe=unsafe)),
    "notebook": lambda unsafe: in_notebook(Limits(20.0, unsafe=unsafe)),
    "tool": lambda unsafe: call_tool(
        {"python": python_tool(20.0, unsafe=unsafe)}, ToolCall("python", {"code": "6 * 7"})
    ),
    "--tools": lambda unsafe: call_tool(
        choose_tools("python", 20.0, unsafe=unsafe), ToolCall("python", {"code": "6 * 7"})
    ),
    "problems": lambda unsafe: run_program("print(6 * 7)", 5.0, 10**9, unsafe=unsafe).output + "\n",
}


@pytest.mark.parametrize("way", WAYS)
def test_refused_unless_the_user_says_so(way: str) -> None:
    with pytest.raises(IngotError, match=r"cannot be isolated[^§]*install bubblewrap[^§]*--unsafe"):
        WAYS[way](False)
    assert WAYS[way](True) == "42\n"


def test_a_recipe_says_so_for_problems() -> None:
    answer = "Problem: six times seven?\nProgram:\n```python\nprint(6 * 7)\n```\nAnswer: 42"
    passage = SourcePassage("1", 0, 4, "text")
    request = WriterRequest("problems", passage, "prompt")
    with pytest.raises(IngotError, match="unsafe: true"):
        ProblemsTask().check(request, answer)
    assert "prints 42" in ProblemsTask(unsafe=True).check(request, answer)


def test_a_session_without_isolation_is_interrupted_too() -> None:
    with Shell(Limits(20.0, unsafe=True)) as shell:
        assert shell.run("echo begun; sleep 60", 0.5).stopped == "time"
        assert shell.run("echo again").output == "again\n"
