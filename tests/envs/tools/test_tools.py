"""Tools in processes of their own: schemas from hints, arguments that are checked, deadlines that hold."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.utils import get_json_schema

from ingot.cli.tools import choose_tools
from ingot.envs.tools.find import find_tools
from ingot.envs.tools.python import python_tool, run_python
from ingot.envs.tools.tool import call_tool
from ingot.envs.tools.worker import HintError, check, describe, problem, schema_of
from ingot.tokens.chat import ToolCall
from ingot.workspace.errors import ArtifactError, IngotError
from tests.making.processes import wait_until

jsonschema: Any = pytest.importorskip("jsonschema", reason="needs jsonschema to compare with")
TOOLS = '''
"""My tools."""
import os, time
from typing import Literal
from neighbour import DOUBLE

def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """The weather in a city.

    Args:
        city: its name
        days: how many days ahead
    """
    print("noise on stdout")
    return f"{city}: {DOUBLE(10 * days)} {unit}"

def table(rows: list[dict[str, float]]) -> list[float]:
    """Sums."""
    return [sum(row.values()) for row in rows]

def who() -> int:
    """The process."""
    return os.getpid()

def sleep(seconds: float) -> None:
    """Takes a while."""
    time.sleep(seconds)

def fail(reason: str) -> str:
    """Never works."""
    raise ValueError(reason)

def leave() -> str:
    """Ends the process."""
    os._exit(3)

def _private() -> None: ...
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    (folder / "my_tools.py").write_text(TOOLS)
    (folder / "neighbour.py").write_text("DOUBLE = lambda number: 2 * number\n")
    return folder


def test_functions_of_a_file_are_tools(folder: Path) -> None:
    tools = find_tools([str(folder / "my_tools.py")], deadline=1.0)
    assert list(tools) == ["weather", "table", "who", "sleep", "fail", "leave"]
    assert tools["weather"].schema == {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "its name"},
                "days": {"type": "integer", "description": "how many days ahead"},
                "unit": {"enum": ["C", "F"]},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    run = {name: lambda given, tool=tool: asyncio.run(tool.answer(given)) for name, tool in tools.items()}
    assert run["weather"]({"city": "Zürich", "days": 2}) == "Zürich: 40 C"
    assert run["table"]({"rows": [{"a": 1, "b": 2.5}, {}]}) == "[3.5, 0]"
    assert run["weather"]({"city": 5}) == "error: city must be a string, not 5"
    assert run["weather"]({}) == "error: the argument city is missing"
    assert run["weather"]({"city": "x", "unit": "K"}) == 'error: unit must be one of ["C", "F"]'
    assert run["weather"]({"town": "x", "city": "y"}) == "error: there is no argument town; there are: city, days, unit"
    assert run["fail"]({"reason": "because"}) == "error: ValueError: because"
    first = run["who"]({})
    assert int(first) != os.getpid() and run["who"]({}) == first  # one process for all calls
    began = time.monotonic()
    assert run["sleep"]({"seconds": 60}) == "error: no answer in 1 seconds"
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    assert run["leave"]({}) == "error: the tool's process ended"
    assert int(run["who"]({})) != int(first)  # and another for the next


def test_a_call_that_misses_its_deadline_ends_with_all_that_it_started(tmp_path: Path) -> None:
    source = "import subprocess, time\n\ndef start() -> None:\n    subprocess.Popen(['sleep', '60']).wait()\n"
    (tmp_path / "tools.py").write_text(source.replace("'60'", f"'60', '{os.getpid()}.25'"))
    assert (
        asyncio.run(find_tools([str(tmp_path / "tools.py")], deadline=1.0)["start"].answer({}))
        == "error: no answer in 1 seconds"
    )
    mark = f"{os.getpid()}.25".encode()
    wait_until(lambda: not any(mark in _text(path) for path in Path("/proc").glob("[0-9]*/cmdline")))


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended
        return b""


def plain(count: int, name: str, share: float, loud: bool, parts: list[int], table: dict[str, float]) -> str:
    """
    Does something.

    Args:
        count: how many
        name: of what
        share: a part
        loud: whether
        parts: some
        table: of numbers
    """
    return ""


def test_schemas_are_those_of_transformers() -> None:
    theirs = get_json_schema(plain)["function"]
    ours = describe(plain)
    assert ours["name"] == theirs["name"] and ours["description"] == theirs["description"]
    assert ours["parameters"]["properties"] == theirs["parameters"]["properties"]
    assert ours["parameters"]["required"] == theirs["parameters"]["required"]


def test_hints_that_json_cannot_write_are_refused() -> None:
    assert schema_of(Annotated[int | None, "a number"]) == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "description": "a number",
    }
    for hint in (bytes, dict[int, str], tuple[int, str], Path, Any):
        with pytest.raises(HintError, match="has no JSON form"):
            schema_of(hint)

    def bare(x) -> None: ...  # type: ignore[no-untyped-def]

    def many(*x: int) -> None: ...

    with pytest.raises(HintError, match="the parameter x has no type hint"):
        describe(bare)
    with pytest.raises(HintError, match=r"\*x: .*cannot be given by name"):
        describe(many)


HINTS = st.recursive(
    st.sampled_from([str, int, float, bool, None, Literal["a", "b"], Literal[1, "x"]]),
    lambda inner: st.one_of(inner.map(lambda hint: list[hint]), inner.map(lambda hint: dict[str, hint])),  # type: ignore[valid-type]
    max_leaves=4,
)
WHOLE = st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: number != int(number))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), WHOLE, st.sampled_from(["a", "x", ""])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(st.lists(HINTS, min_size=1, max_size=3), VALUES)
def test_arguments_are_checked_as_jsonschema_checks_them(hints: list[Any], value: Any) -> None:
    parts = [schema_of(hint) for hint in hints]
    schema = parts[0] if len(parts) == 1 else {"anyOf": parts}
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert (problem(value, schema, "x") is None) == valid
    whole = {"parameters": {"type": "object", "properties": {"x": schema}, "required": ["x"]}}
    assert (check({"x": value}, whole) is None) == valid


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nowhere", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
        ("def f(x): ...", "f: the parameter x has no type hint"),
        ("def f(x: 'Missing'): ...", "NameError"),
        ("x = 1", "no public function"),
        ("import os; os._exit(1)", "or it exits"),
    ],
)
def test_a_file_that_holds_no_tools_is_refused(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "bad.py").write_text(source)
    with pytest.raises(ArtifactError, match=said):
        find_tools([str(tmp_path / "bad.py")])


def test_python_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    def run(code: str, deadline: float = 20.0) -> str:
        return run_python(code, deadline)

    assert run("print('hé')\n6 * 7") == "hé\n42\n"
    assert run("x = 1") == "(nothing was printed)"
    assert run("print('before')\n1 / 0") == "before\nerror: ZeroDivisionError: division by zero"
    assert run("x = (") == "error: SyntaxError: '(' was never closed"
    assert run("import os\nprint(os.getcwd() == os.environ['HOME'], len(os.listdir()), os.environ.get('USER'))") == (
        "True 0 None\n"
    )
    assert run("bytearray(10**11)") == "error: MemoryError"
    assert run("open('large', 'wb').write(bytes(10**8))").startswith("error: OSError")
    assert run("while True: pass", 1.0) == "error: stopped after 1 seconds"
    left = tmp_path / "left"
    for session in ("pass", "os.setsid()"):  # also what has left the group of processes
        child = f"import os, time\nif os.fork() == 0:\n    {session}\n    time.sleep(1)\n    open({str(left)!r}, 'w')\n"
        assert run(child) == "(nothing was printed)"
    hiding = f"{child}else:\n    time.sleep(60)"
    assert run(hiding, 0.5) == "error: stopped after 0.5 seconds"
    time.sleep(1.5)
    assert not left.exists()  # what the code started ends with it
    said = asyncio.run(python_tool().answer({"program": "1"}))
    assert said == "error: the argument code is missing"


def test_the_list_of_tools(folder: Path) -> None:
    tools = choose_tools(f"calculator, python,{folder / 'my_tools.py'}", 5.0)
    assert list(tools)[:3] == ["calculator", "python", "weather"]
    assert [tool.asks for tool in tools.values()][:3] == [False, True, True]
    assert call_tool(tools, ToolCall("calculator", {"expression": "12*34"})) == "408"
    assert choose_tools("none", 5.0) == {}
    with pytest.raises(IngotError, match="there is no tool search"):
        choose_tools("search", 5.0)
    with pytest.raises(IngotError, match="two tools are called python"):
        choose_tools("python,python", 5.0)
