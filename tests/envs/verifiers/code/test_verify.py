"""The code verifier on published problems: their own solutions are right, and everything else is not."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from ingot.envs.verifiers.code import programs as code_programs
from ingot.envs.verifiers.code.calls import same
from ingot.envs.verifiers.code.tests import Asserts, Calls, FunctionCall, InputOutput
from ingot.envs.verifiers.code.verify import Verdict, verify
from ingot.envs.verifiers.errors import VerifierError
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits
from ingot.sandbox.run import isolation
from tests.conftest import SHARED_DATA
from tests.making.rows import read_rows
from tests.slow import slow

LIMITS = Limits(20.0)
PROBLEMS = [
    (name, SHARED_DATA / name / file)
    for name, file in (("humaneval", "humaneval_dev.jsonl.gz"), ("mbpp", "mbpp.jsonl.gz"))
]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    if isolation() == "process":
        pytest.skip("bwrap is not installed, or user namespaces are refused")
    with Pool(4) as pool:
        yield pool


def problems(name: str, step: int = 1) -> list[tuple[str, Asserts]]:
    """The canonical solution and the tests of every n-th problem of a set."""
    path = dict(PROBLEMS)[name]
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    rows = read_rows(path)[::step]
    return [humaneval(row) if name == "humaneval" else mbpp(row) for row in rows]


def humaneval(row: dict[str, Any]) -> tuple[str, Asserts]:
    entry = row["entry_point"]
    tests = Asserts(f"{row['test']}\ncheck({entry})", row["prompt"], (entry,))
    return row["prompt"] + row["canonical_solution"], tests


def mbpp(row: dict[str, Any]) -> tuple[str, Asserts]:
    tests = "\n".join(row["test_list"])
    used = {
        node.func.id
        for node in ast.walk(ast.parse(tests))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    defined = {node.name for node in ast.parse(row["code"]).body if isinstance(node, ast.FunctionDef)}
    return row["code"], Asserts(tests, row["test_setup_code"], tuple(sorted(used & defined)))


def empty(source: str, tests: Asserts) -> str:
    """A program whose functions do nothing."""
    return "\n".join(f"def {name}(*arguments):\n    pass" for name in tests.entry_points)


def exits(source: str, tests: Asserts) -> str:
    return source + "\nimport os\nos._exit(0)"


def exits_when_called(source: str, tests: Asserts) -> str:
    return "import os\n" + "\n".join(f"def {name}(*arguments):\n    os._exit(0)" for name in tests.entry_points)


def rewards(pool: Pool, pairs: list[tuple[str, Asserts]]) -> list[Verdict]:
    patient = replace(LIMITS, seconds=120.0)  # some published solutions take seconds, and the machine may be busy
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda pair: verify(pair[0], pair[1], pool, patient), pairs))


def check_set(pool: Pool, found: list[tuple[str, Asserts]], every: int) -> None:
    """Canonical solutions are right; every n-th problem with another one's solution, an empty one and an early exit is not."""
    right = rewards(pool, found)
    assert [verdict.problem for verdict in right if verdict.reward != 1.0] == []
    rotated = [(found[index - 1][0], tests) for index, (_, tests) in enumerate(found)]
    for make in (empty, exits, exits_when_called):
        rotated += [(make(source, tests), tests) for source, tests in found[::every]]
    wrong = rewards(pool, rotated[: len(found)][::every] + rotated[len(found) :])
    assert [verdict for verdict in wrong if verdict.reward != 0.0] == []


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize(("name", "step", "every"), [("humaneval", 1, 5), ("mbpp", 25, 8)])
def test_published_problems(pool: Pool, name: str, step: int, every: int) -> None:
    check_set(pool, problems(name, step), every)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_all_published_problems(pool: Pool, name: str) -> None:
    check_set(pool, problems(name), 2)


def test_the_share_of_asserts_that_pass(pool: Pool) -> None:
    tests = Asserts("assert f(1) == 1\nassert f(2) == 2\nassert f(3) == 3\nassert f(4) == 4")
    source = "def f(x):\n    if x == 4: raise ValueError('no')\n    return min(x, 2)"
    assert verify(source, tests, pool, LIMITS, "share") == Verdict(0.5, 2, 4, "AssertionError: ")
    assert verify(source, tests, pool, LIMITS).reward == 0.0
    ends = "import os\ndef f(x):\n    if x == 3: os._exit(0)\n    return x"
    assert verify(ends, tests, pool, LIMITS, "share").reward == 0.5


def test_what_crosses_between_tests_and_program(pool: Pool) -> None:
    """Values, changed arguments, functions in both directions, objects with methods, generators, exceptions."""
    source = """
class Account:
    def __init__(self, balance): self.balance = balance
    def add(self, amount): self.balance += amount; return self
    def __len__(self): return 3
    def __str__(self): return f"<{self.balance}>"
def sort(items): items.sort(); items.append((1, 2))
def apply(function, items): return [function(item) for item in items]
def count():
    number = 0
    while True: yield number; number += 1
def values(): return {(1, 2): {3.5, None}, "x": [b"y", 10**30, -0.0, 1j, True, frozenset({1})]}
def fail(): raise KeyError("missing")
"""
    tests = """
account = Account(5)
account.add(3).add(1)
account.owner = "me"
assert account.balance == 9 and account.owner == "me" and len(account) == 3 and str(account) == "<9>"
items = [3, 1, 2]
sort(items)
assert items == [1, 2, 3, (1, 2)]
assert apply(lambda x: x * 2, [1, 2]) == [2, 4] and apply(str, [1]) == ["1"] and apply(len, ["ab"]) == [2]
numbers = count()
assert [next(numbers), next(numbers)] == [0, 1] and math.isclose(next(numbers), 2)
assert values() == {(1, 2): {3.5, None}, "x": [b"y", 10**30, -0.0, 1j, True, frozenset({1})]}
try:
    fail()
    assert False
except KeyError as error:
    assert "missing" in str(error)
"""
    assert verify(source, Asserts(tests), pool, LIMITS) == Verdict(1.0, 6, 6)


CASES = [
    ("def f(x): return x * 2", [FunctionCall([2], 4), FunctionCall(["ab"], "abab")], 1.0),
    ("def f(x): return x, [x]", [FunctionCall([2], [2, [2]])], 1.0),  # JSON has no tuples
    ("def f(x): return x / 3", [FunctionCall([1], 0.33333333333)], 1.0),
    ("def f(x, y=1): return {x: y}", [FunctionCall([2], {2: 5}, {"y": 5})], 1.0),
    ("def f(x): return {3, 1}", [FunctionCall([0], {1, 3})], 1.0),
    ("def f(x): return 1", [FunctionCall([0], True)], 0.0),
    ("def f(x): return '4'", [FunctionCall([0], 4)], 0.0),
    ("def f(x): return x + 1", [FunctionCall([0], 1), FunctionCall([1], 3)], 0.0),
    ("def g(x): return x", [FunctionCall([0], 0)], 0.0),
    ("def f(x) return x", [FunctionCall([0], 0)], 0.0),
    ("def f(x): raise ValueError", [FunctionCall([0], 0)], 0.0),
    ("def f(x):\n    while True: pass", [FunctionCall([0], 0)], 0.0),
]


@pytest.mark.parametrize(("source", "calls", "reward"), CASES)
def test_calls(pool: Pool, source: str, calls: list[FunctionCall], reward: float) -> None:
    assert verify(source, Calls("f", calls), pool, Limits(2.0)).reward == reward


def test_values_that_python_finds_equal_and_those_it_does_not() -> None:
    nan = {"float": "nan"}
    assert same(nan, nan) and same({"float": "inf"}, {"float": "inf"}) and same(3, {"float": (3.0).hex()})
    assert not same(nan, 0) and not same(None, False) and not same({"int": hex(2**60)}, {"int": hex(2**60 + 1)})
    assert same({"dict": [[1, 2], ["a", [3]]]}, {"dict": [["a", {"tuple": [3]}], [1, 2]]})
    assert not same({"dict": [[1, 2]]}, {"dict": [["1", 2]]})


PROGRAMS = {
    "python": "a, b = map(int, input().split())\nprint(a + b)",
    "c": '#include <stdio.h>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }',
    "c++": "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }",
    "rust": (
        "use std::io;\nfn main() { let mut line = String::new(); io::stdin().read_line(&mut line).unwrap();\n"
        'let sum: i32 = line.split_whitespace().map(|x| x.parse::<i32>().unwrap()).sum(); println!("{}", sum); }'
    ),
    "go": 'package main\nimport "fmt"\nfunc main() { var a, b int; fmt.Scan(&a, &b); fmt.Println(a + b) }',
    "javascript": "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number); console.log(a + b);",
    "java": (
        "import java.util.Scanner;\nclass Sum { public static void main(String[] arguments) {\n"
        "var input = new Scanner(System.in); System.out.println(input.nextInt() + input.nextInt()); } }"
    ),
    "bash": "read a b; echo $((a + b))",
}


def need(language: str) -> None:
    tool = code_programs.LANGUAGES[language].tool
    if language != "python" and shutil.which(tool, path=code_programs.FOLDERS) is None:
        pytest.skip(f"{tool} is not in {code_programs.FOLDERS}")


@pytest.mark.parametrize("language", [slow(each) if each == "java" else each for each in PROGRAMS])
def test_programs(pool: Pool, language: str) -> None:
    need(language)
    tests = InputOutput([("1 2\n", "3"), ("20 22\n", "42 \n\n")], language)
    assert verify(PROGRAMS[language], tests, pool, LIMITS) == Verdict(1.0, 2, 2)
    wrong = InputOutput([("1 2\n", "3"), ("20 22\n", "43")], language)
    assert verify(PROGRAMS[language], wrong, pool, LIMITS, "share").reward == 0.5
    assert verify("no program (", tests, pool, LIMITS).reward == 0.0


def test_every_language_has_a_program() -> None:
    assert set(PROGRAMS) == set(code_programs.LANGUAGES)


LOOPS = {
    "c": "int main() { volatile int x = 0; for (;;) x++; }",
    "rust": "fn main() { loop {} }",
    "go": "package main\nfunc main() { for {} }",
    "java": "class Loop { public static void main(String[] arguments) { while (true) {} } }",
}
HOARDS = {
    "c": "#include <stdlib.h>\n#include <string.h>\nint main() { for (;;) memset(malloc(1 << 24), 1, 1 << 24); }",
    "rust": "fn main() { let mut all = Vec::new(); loop { all.push(vec![1u8; 1 << 24]); } }",
    "go": (
        "package main\nfunc main() { var all [][]byte; for { part := make([]byte, 1<<24)\n"
        "for i := range part { part[i] = 1 }; all = append(all, part) } }"
    ),
    "java": (
        "import java.util.ArrayList;\nclass Hoard { public static void main(String[] arguments) {\n"
        "var all = new ArrayList<byte[]>(); while (true) all.add(new byte[1 << 24]); } }"
    ),
}


@pytest.mark.parametrize("language", LOOPS)
def test_a_program_that_does_not_end(pool: Pool, language: str) -> None:
    need(language)
    verdict = verify(LOOPS[language], InputOutput([("", "")], language), pool, Limits(1.5))
    assert verdict == Verdict(0.0, 0, 1, "input 1: over the limit: time")


@pytest.mark.parametrize("language", HOARDS)
def test_a_program_that_takes_memory_without_end(pool: Pool, language: str) -> None:
    """Runtimes that reserve addresses are stopped by the watch; of others the allocation fails, if the watch is not first."""
    need(language)
    verdict = verify(HOARDS[language], InputOutput([("", "")], language), pool, Limits(60.0, memory=2**28))
    assert verdict.reward == 0.0
    seen, failed = "input 1: over the limit: memory", "input 1: it ended with status -"
    assert verdict.problem.startswith((seen,) if code_programs.LANGUAGES[language].reserves else (seen, failed))


def test_a_compiler_reads_no_file_of_the_machine(pool: Pool) -> None:
    need("rust")
    source = 'fn main() { print!("{}", include_str!("/etc/passwd")); }'
    verdict = verify(source, InputOutput([("", "")], "rust"), pool, LIMITS)
    assert verdict.reward == 0.0 and "couldn't read /etc/passwd" in verdict.problem


def test_a_compiler_that_takes_too_long(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    need("c")
    monkeypatch.setattr(code_programs, "COMPILE", replace(code_programs.COMPILE, seconds=0.0))
    verdict = verify(PROGRAMS["c"], InputOutput([("1 2\n", "3")], "c"), pool, LIMITS)
    assert verdict == Verdict(0.0, 0, 1, "its compiler is over the limit: time")


def test_a_language_whose_tools_are_missing(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(code_programs.LANGUAGES, "c", replace(code_programs.LANGUAGES["c"], tool="no-such-compiler"))
    with pytest.raises(VerifierError, match="no-such-compiler, which c needs, is not in"):
        verify(PROGRAMS["c"], InputOutput([], "c"), pool, LIMITS)


def test_a_verifier_that_fails_says_nothing_about_the_program(pool: Pool) -> None:
    with pytest.raises(VerifierError, match="the tests are not Python"):
        verify("def f(): pass", Asserts("assert f( =="), pool, LIMITS)
    with pytest.raises(VerifierError, match="there is no language cobol"):
        verify("", InputOutput([], "cobol"), pool, LIMITS)
    with pytest.raises(VerifierError, match="not plain data"):
        verify("def f(x): pass", Calls("f", [FunctionCall([object()], 1)]), pool, LIMITS)
    closed = Pool(2)
    closed.close()
    for tests in (Asserts("assert f()"), Calls("f", [FunctionCall([], 1)]), InputOutput([("", "")])):
        with pytest.raises(VerifierError, match="the pool is closed") as failed:
            verify("def f(): return 1", tests, closed, LIMITS)
        assert failed.value.part == "sandbox"
