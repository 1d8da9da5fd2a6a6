"""The tool that tries faults (tools/mutate.py): which faults there are, and which of them no test notices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.making.rows import read_rows

TOOLS = Path(__file__).parents[1] / "tools"
sys.path.append(str(TOOLS))

if TYPE_CHECKING:
    mutants: Any
    mutate: Any
else:
    import mutate
    from mutants import mutants


def changes(source: str) -> list[tuple[str, str]]:
    return [(each.kind, each.after) for each in mutants(source)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a < b", [("comparison", "x = a <= b")]),
        ("x = a is not b", [("comparison", "x = a is b")]),
        ("x = a < b < c", [("comparison", "x = a <= b < c"), ("comparison", "x = a < b <= c")]),
        ("é = (a) + (b)", [("arithmetic", "é = (a) - (b)")]),
        ("x += a", [("statement", "pass")]),
        ("x = not a and b", [("boolean", "x = not a or b"), ("boolean", "x = a and b")]),
        ("x = a if b else c", [("condition", "x = a if not b else c")]),
        ("x = [3, 0.5, True]", [("constant", f"x = {each}") for each in ("[4, 0.5, True]", "[3, 1.0, True]", "[3, 0.5, False]")]),
        ("x = np.min(a)", [("call", "x = np.max(a)")]),
        ("f(a)", [("statement", "pass")]),
        ("a.b = c", [("statement", "pass")]),
        ("def f(): return a", [("return", "def f(): return None")]),
    ],
)  # fmt: skip
def test_the_faults_of_a_line(line: str, expected: list[tuple[str, str]]) -> None:
    assert changes(line) == expected


def test_what_is_no_fault() -> None:
    """Types, decorators, docstrings, what errors say, assertions: only to leave out the `raise` is one."""
    source = '''"""1 < 2."""
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 3
@decorator(1)
def f(a: int | None) -> dict[1, 2]:
    """3."""
    assert a > 3
    zip(a, strict=True)
    print(f"{a - 1:.2f}")
    raise ValueError(f"{a + 1} of " + "3")
'''
    assert changes(source) == [("statement", "pass")] * 3


def test_each_mutant_is_the_source_with_one_line_changed() -> None:
    source = (TOOLS / "mutants.py").read_text("utf-8")
    found = mutants(source)
    assert len(found) > 60
    for each in found:
        pairs = zip(source.split("\n"), each.source.split("\n"), strict=True)
        assert [at for at, (one, other) in enumerate(pairs, 1) if one != other] == [each.line]


def test_the_rooms_are_where_the_tool_looks() -> None:
    root = TOOLS.parent
    for modules, tests in mutate.ROOMS.values():
        assert [path for path in f"{modules} {tests}".split() if not (root / path).exists()] == []
        assert mutate.python_files(root, modules.split())


def test_the_list_of_explained_mutants(tmp_path: Path) -> None:
    file = tmp_path / "explained.txt"
    file.write_text("# why\na.py\n- x = 1\n+ x = 2\n= nobody reads x\n\n- y\n+ z\n= the same\n")
    assert mutate.read_explained(file) == {("a.py", "x = 1", "x = 2"), ("a.py", "y", "z")}
    for wrong in ("- x\n+ y\n= no file\n", "a.py\n- x\n+ y\n=  \n", "a.py\n- x\n= no mutant\n"):
        file.write_text(wrong)
        with pytest.raises(SystemExit, match="in this order"):
            mutate.read_explained(file)


def run_tool(root: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    out = root / "survivors.jsonl"
    command = [sys.executable, str(TOOLS / "mutate.py"), "package", "--tests", "tests", "--root", str(root)]
    done = subprocess.run(
        [*command, "--jobs", "2", "--preload", "", "--out", str(out), *more],
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done, read_rows(out) if out.exists() else []


@pytest.mark.slow
def test_nothing_is_tried_where_no_test_passes(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text("def f(n):\n    return n + 1\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_code.py").write_text("import nowhere\ndef test_one():\n    pass\n")
    done, found = run_tool(tmp_path)
    assert done.returncode and not found
    assert "no test passes without a fault" in done.stderr and "tests/test_code.py" in done.stderr


@pytest.mark.slow
def test_a_line_that_no_test_runs_survives(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text("def f(n):\n    return n\n\ndef g(n):\n    return n\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_code.py").write_text(
        "from package.code import f\ndef test_f():\n    assert f(2) == 2\n"
    )
    done, found = run_tool(tmp_path)
    assert done.returncode == 1, done.stderr
    assert [(each.get("line"), each.get("tests"), each.get("tried")) for each in found] == [
        (5, 0, None),
        (None, None, 2),
    ]


@pytest.mark.slow
def test_survivors_of_a_small_package(tmp_path: Path) -> None:
    """Four faults: a test in this process, one in a program and one that never ends notice three of them."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text(
        "def sum_to(n):\n    while n > 0:\n        return n * (n + 1) // 2\n\ndef tell(n):\n    print(n + 1)\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_code.py").write_text(
        "import subprocess, sys\nfrom package.code import sum_to\n"
        "def test_sum():\n    assert sum_to(4) == 10\n"
        "def test_program():\n    code = 'from package.code import tell; tell(2)'\n"
        "    assert subprocess.check_output([sys.executable, '-c', code]) == b'3\\n'\n"
        "def test_that_fails_anyway():\n    assert False\n"
    )
    (tmp_path / "tests" / "test_broken.py").write_text("import nowhere\n")
    explained = tmp_path / "explained.txt"
    explained.write_text("package/code.py\n- while n > 0:\n+ while n >= 0:\n= the sum up to 0 is nobody's\n")
    done, found = run_tool(tmp_path, "--explained", str(explained))
    assert done.returncode == 1, done.stderr  # less than 95 % died
    assert "left out, for without a fault it does not pass: tests/test_code.py::test_that_fails_anyway" in done.stdout
    assert "left out, for without a fault it does not pass: tests/test_broken.py (cannot be imported)" in done.stdout
    *survivors, total = found
    assert sorted((each["line"], each["after"]) for each in survivors) == [
        (2, "while n > 1:"),
    ]
    assert total["survived"] == 1 and total["tried"] == total["of"] == 1 + 6 + 3
    assert f"{100 * (1 - 1 / 10):5.1f}%" in done.stdout


def test_a_fault_in_an_expression_of_many_lines_is_of_its_whole_statement() -> None:
    source = "def f(a):\n    if a:\n        return g(\n            1,\n            2,\n        )\n"
    source += "@kernel\ndef k(a):\n    return a + 3\n"
    found = {each.after: (each.line, each.first, each.last, each.compiled) for each in mutants(source)}
    assert found["2,"] == (4, 3, 6, False) and found["if not a:"] == (2, 2, 2, False)
    assert found["return a - 3"] == (9, 9, 9, True)
