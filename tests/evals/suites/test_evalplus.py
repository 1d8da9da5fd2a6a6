"""EvalPlus: verdicts, comparisons and arguments by EvalPlus's own code, on rows of ours in its format."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.bases.evalplus_compare import equal, same
from ingot.evals.engine.prompt import as_text
from ingot.evals.suites.humaneval_plus import HumanevalPlus
from ingot.evals.suites.mbpp_plus import MbppPlus
from tests.evals.suites.asking import measure, subject, units
from tests.evals.suites.test_humaneval_mbpp import needs_sandbox
from tests.making.rows import write_rows

ROWS: list[dict[str, Any]] = [
    {
        "task_id": "HumanEval/1000",
        "prompt": 'def halves(numbers):\n    """Each number divided by three."""\n',
        "entry_point": "halves",
        "canonical_solution": "    return [number / 3 for number in numbers]\n",
        "base_input": [[[3, 6]], [[1]]],
        "plus_input": [[[]], [[1e300, -1e-9]], [[2, 4, 5]]],
        "atol": 0,
    },
    {
        "task_id": "HumanEval/1001",
        "prompt": 'def first(items):\n    """The smallest of a list, which is emptied; None of an empty one."""\n',
        "entry_point": "first",
        "canonical_solution": "    items.sort()\n    return items.pop(0) if items else None\n",
        "base_input": [[[3, 1, 2]]],
        "plus_input": [[[]], [[5, 5]], [["b", "a"]]],
        "atol": 0,
    },
    {
        "task_id": "HumanEval/1002",
        "prompt": 'def count_down(number):\n    """Numbers from `number` down to 1."""\n',
        "entry_point": "count_down",
        "canonical_solution": "    return [number] + count_down(number - 1) if number > 0 else []\n",
        "base_input": [[3], [1]],
        "plus_input": [[0], [-1], [50]],
        "atol": 0,
    },
]
BODIES = {
    "halves": (
        "    return [round(n / 3, 8) for n in numbers]\n",
        "    return tuple(n / 3 for n in numbers)\n",
        "    return numbers\n",
    ),
    "first": (
        "    return min(items)\n",
        "    return min(items, default=None)\n",
        "    return items[0] if items else 0\n",
    ),
    "count_down": (
        "    return list(range(number, 0, -1))\n",
        "    return range(number, 0, -1)\n",
        "    return [3, 2, 1][3 - number :]\n",
    ),
}


def published() -> Any:
    return pytest.importorskip("evalplus.eval", reason="needs evalplus (pip install evalplus)")


@pytest.mark.slow
@needs_sandbox
def test_verdicts_are_evalplus_s(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", ROWS)
    suite = HumanevalPlus(files=(str(file),))
    theirs_of = published().untrusted_check
    verdicts = []
    for number in range(4):
        answers = {row["prompt"]: (row["canonical_solution"], *BODIES[row["entry_point"]])[number] for row in ROWS}
        found = measure(suite, lambda request, said=answers: said[as_text(request.prompt)], subject())  # type: ignore[misc]
        for row in ROWS:
            passed = []
            for column in ("base_input", "plus_input"):
                expected = [_reference(row)(*json.loads(json.dumps(call))) for call in row[column]]
                code = row["prompt"] + answers[row["prompt"]]
                inputs, entry = json.loads(json.dumps(row[column])), row["entry_point"]
                status, _ = theirs_of("humaneval", code, inputs, entry, expected, row["atol"], [0.1] * len(inputs))
                passed.append(status == "pass")
            ours = units(found)
            verdict = (ours["humaneval_plus/base"][row["task_id"]], ours["humaneval_plus/pass@1"][row["task_id"]])
            assert verdict == (float(passed[0]), float(all(passed))), (number, row["entry_point"])
            verdicts.append(verdict)
    assert {(1, 1), (1, 0), (0, 0)} == set(verdicts)


def _reference(row: dict[str, Any]) -> Any:
    names: dict[str, Any] = {}
    exec(row["prompt"] + row["canonical_solution"], names)
    return names[row["entry_point"]]


VALUES: list[Any] = [
    0,
    1,
    True,
    None,
    "",
    "a",
    0.1,
    0.1 + 1e-7,
    0.1 + 1e-5,
    1e9,
    1e9 + 1,
    math.inf,
    -math.inf,
    math.nan,
    1j,
]
VALUES += [
    [],
    [0.1],
    (0.1,),
    [0.1 + 1e-8],
    [0.1, 2],
    [0.1 + 1e-8, 2],
    [[0.5], [1.0]],
    [[0.5], [1.0 + 1e-9]],
    {"a": 0.1},
    {1, 2},
]


@pytest.mark.parametrize("tolerance", [0, 1e-4])
def test_comparisons_are_evalplus_s(tolerance: float) -> None:
    """All pairs of 25 values, by the rule of its `unsafe_execute`: equality, then types, lengths and numpy's allclose."""
    numpy, is_floats = pytest.importorskip("numpy"), published().is_floats

    def theirs(given: Any, expected: Any) -> bool:
        allowed = 1e-6 if tolerance == 0 and is_floats(expected) else tolerance
        alike = bool(given == expected)
        if alike or allowed == 0:
            return alike
        if type(given) is not type(expected) or (isinstance(expected, list | tuple) and len(given) != len(expected)):
            return False
        return bool(numpy.allclose(given, expected, rtol=1e-07, atol=allowed))

    def outcome(compare: Any, *values: Any) -> bool:
        try:
            return bool(compare(*values))
        except (TypeError, ValueError):
            return False  # an error is a failed test

    for given in VALUES:
        for expected in VALUES:
            ours = outcome(equal, given, expected, tolerance)
            assert ours == outcome(theirs, given, expected), (given, expected)


def test_answers_that_may_differ() -> None:
    oracles = pytest.importorskip("evalplus.eval._special_oracle", reason="needs evalplus (pip install evalplus)")
    assert same("find_zero", [[-6, 11, -6, 1]], 2.00001, 1.0, 1e-4) and not same("find_zero", [[1, 2]], 0.5, -0.5, 1e-4)
    for name in oracles.MBPP_OUTPUT_SET_EQ_TASKS:
        assert same(name, [], (2, 1), (1, 2), 0) and not same(name, [], (1,), (1, 2), 0)
    for name in oracles.MBPP_OUTPUT_NOT_NONE_TASKS:
        assert (
            same(name, [], "match", "another", 0)
            and same(name, [], True, "match", 0)
            and not same(name, [], None, "x", 0)
        )
    for edge, height in ((3, 4), (4, 5), (1, 2)):
        assert same("surface_Area", [edge, height], oracles._surface_Area(edge, height), -1, 0)
        assert not same("surface_Area", [edge, height], oracles._surface_Area(edge, height) + 1, -1, 0)
    for pair in ((1, 2), (123, 256), (7, 1000)):
        assert same("digit_distance_nums", list(pair), oracles._digit_distance_nums(*pair), -1, 0)


def test_arguments_are_evalplus_s() -> None:
    """Every problem of MBPP+ whose arguments JSON cannot hold; the others stay as they are."""
    module = pytest.importorskip("evalplus.data.mbpp", reason="needs evalplus (pip install evalplus)")
    nested = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    deeper = [[[[1, 2], [3]], [[4], [5, 6]]], [[[7]], [[8, 9]]]]
    shapes = {
        124: ["1.5", "2+1j"],
        252: ["2+1j"],
        307: [[1, 2], 0, 9],
        722: [{"a": [1, 2]}, 3, 4],
        115: [[[1], [], {}]],
    }
    suite = MbppPlus()
    for id in range(1, 975):
        for call in [shapes[id]] if id in shapes else [nested, *([deeper] if id in (259, 401, 445) else [])]:
            theirs = module.mbpp_deserialize_inputs(f"Mbpp/{id}", json.loads(json.dumps([call])))
            ours = suite.arguments({"task_id": f"Mbpp/{id}"}, json.loads(json.dumps([call])))
            assert list(map(list, ours)) == list(map(list, theirs)), id
