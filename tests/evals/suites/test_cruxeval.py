"""CRUXEval: answers are literals, or calls that are run; Python itself says what the functions return."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pydantic import ValidationError

from ingot.evals.engine.request import Generation
from ingot.evals.suites.cruxeval import Cruxeval, predicted_call, same_literal
from ingot.workspace.errors import DataError
from tests.evals.against_lm_eval.published import Row, rows_of
from tests.evals.suites.asking import last_text, measure, recorded, subject, units, values
from tests.evals.suites.test_humaneval_mbpp import needs_sandbox


def test_the_files_own_outputs(shared_data: Path) -> None:
    rows = rows_of(shared_data, "cruxeval/cruxeval")
    for row in rows:
        assert same_literal(row["output"], row["output"])
        assert same_literal(f"assert f({row['input']}) == {row['output']}\n[/ANSWER] more", row["output"])
    wrong = [same_literal(first["output"], second["output"]) for first, second in itertools.pairwise(rows)]
    assert sum(wrong) < len(rows) / 20  # a few neighbours do return the same


@pytest.mark.parametrize(
    ("written", "expected", "same"),
    [
        ("1", "1", True),
        ("1.0", "1", False),
        ("True", "1", False),
        ("[1, 2]", "(1, 2)", False),
        ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", True),
        ("'x' * 3", "'xxx'", False),
        ("len([1])", "1", False),
        ('assert f("a == b)") == "q"', "'q'", True),
        ("f(1) == 2", "2", True),
        ("", "''", False),
        ("It is 3.", "3", False),
        ("((((", "1", False),
        ("(" * 5000 + ")" * 5000, "()", False),
    ],
)
def test_literals(written: str, expected: str, same: bool) -> None:
    assert same_literal(written, expected) is same


def test_both_directions_are_asked(shared_data: Path) -> None:
    first = rows_of(shared_data, "cruxeval/cruxeval", 1)[0]
    about = subject(shared_data, limit=1)
    (forwards,), (backwards,) = recorded(Cruxeval(), about), recorded(Cruxeval(direction="input"), about)
    assert last_text(forwards) == f"[PYTHON]\n{first['code']}\nassert f({first['input']}) == ??\n[/PYTHON]\n[ANSWER]\n"
    assert (
        last_text(backwards) == f"[PYTHON]\n{first['code']}\nassert f(??) == {first['output']}\n[/PYTHON]\n[ANSWER]\n"
    )
    assert forwards.stop == backwards.stop == ("[/ANSWER]",)


def authors_verdict(row: Row, written: str) -> bool:
    """The rule of the paper's repository: what stands before ==, without `assert`, is pasted behind the output."""
    call = written.split("==")[0].strip()
    call = call.split("assert")[1].strip() if "assert" in call else call
    if "f(" not in call:
        return False
    try:
        exec(f"{row['code']}\nassert {row['output']} == {call}", {})
    except BaseException:  # noqa: BLE001 - any failure of the program is a wrong answer
        return False
    return True


SUM: Row = {"id": "sum", "code": "def f(a, b=0):\n    return a + b", "input": "1, 2", "output": "3"}
TEXT: Row = {"id": "text", "code": "def f(s):\n    return s.upper()", "input": "'a'", "output": "'A == B'"}
LOOP: Row = {
    "id": "loop",
    "code": "def f(n):\n    while n != 1:\n        n -= 1\n    return n",
    "input": "3",
    "output": "1",
}
ODD = [
    (SUM, "assert f(1, 2) == 3"),
    (SUM, "f(1, 2) == 3"),
    (SUM, "f(1, 2)"),
    (SUM, "f(3)"),
    (SUM, "f(b=1, a=2)"),
    (SUM, "f(*[1, 2])"),
    (SUM, "f(**{'a': 3})"),
    (SUM, "f(True, 2)"),
    (SUM, "f(1.0, 2)"),
    (SUM, "f(1, 3)"),
    (SUM, "f(1, '2')"),
    (SUM, "f()"),
    (SUM, "f(1, 2, 3)"),
    (SUM, "f(len('abc'))"),
    (SUM, "f(max(1, 3))"),
    (SUM, "f(x)"),
    (SUM, "1, 2"),
    (SUM, "(1, 2)"),
    (SUM, "assert g(1, 2) == 3"),
    (SUM, "assert 3 == f(1, 2)"),
    (SUM, "assert f(1, 2) == 4"),  # only what stands before == is read
    (SUM, "assert f(1, 2) == 3 because 1 + 2 is 3"),
    (SUM, "assert f(1, 2) == 3\nassert f(9, 9) == 3"),
    (SUM, "assert f(9, 9) == 3\nassert f(1, 2) == 3"),
    (SUM, "It is assert f(1, 2) == 3"),
    (SUM, "assert f(??) == 3"),
    (SUM, "assert f(1, 2 == 3"),
    (SUM, "assert (f(1, 2)) == 3"),
    (SUM, "assert f(1,\n  2) == 3"),
    (SUM, ""),
    (SUM, "   "),
    (SUM, "assert"),
    (SUM, "=="),
    (SUM, "f(1/0)"),
    (SUM, "f(" * 300),
    (TEXT, "f('a') == 'A == B'"),
    (TEXT, 'f("A " + chr(61) * 2 + " b")'),
]
DIFFERENT = [  # theirs, ours
    (TEXT, "assert f('a == b') == 'A == B'", False, True),  # theirs cuts at the == inside the text
    (SUM, "f(9) or True", True, False),  # theirs asserts `3 == f(9) or True`
    (SUM, "3 or f(9)", True, False),
    (SUM, "[f(1, 2), 3][1]", True, False),
]


@needs_sandbox
def test_predicted_inputs_are_graded_by_running_them() -> None:
    """As the authors' rule grades them, but for an == inside a text, and for what is no call of f."""
    suite = Cruxeval(direction="input", seconds=5)
    odd = [(row, text, verdict, verdict) for row, text in ODD for verdict in [authors_verdict(row, text)]]
    assert {verdict for _, _, verdict, _ in odd} == {True, False}
    for row, text, theirs, ours in [*odd, *DIFFERENT]:
        assert authors_verdict(row, text) == theirs, text
        item = suite._item(row, "here")
        assert suite.grade(item, f"{text}\n[/ANSWER]").scores == {"input": float(ours)}, text


@needs_sandbox
def test_a_program_cannot_claim_to_be_equal() -> None:
    """An argument whose class says that it equals everything, and a call that does not end, are wrong."""
    suite = Cruxeval(direction="input", seconds=3)
    equal = "f(type('Any', (), {'__add__': lambda s, o: s, '__eq__': lambda s, o: True})())"
    assert authors_verdict(SUM, equal) and suite.grade(suite._item(SUM, "here"), equal).scores == {"input": 0.0}
    assert suite.grade(suite._item(LOOP, "here"), "f(0)").scores == {"input": 0.0}
    assert suite.grade(suite._item(LOOP, "here"), "f(5)").scores == {"input": 1.0}


@needs_sandbox
def test_the_files_own_inputs_are_right(shared_data: Path) -> None:
    rows = rows_of(shared_data, "cruxeval/cruxeval", 24)
    by_task = {f"{row['code']}\nassert f(??) == {row['output']}": number for number, row in enumerate(rows)}

    def script(request: Generation) -> str:
        number = by_task[last_text(request).removeprefix("[PYTHON]\n").removesuffix("\n[/PYTHON]\n[ANSWER]\n")]
        given = rows[number if number % 2 else (number + 1) % len(rows)]["input"]  # every second one is a neighbour's
        return f"assert f({given}) == {rows[number]['output']}"

    found = measure(Cruxeval(direction="input"), script, subject(shared_data, limit=len(rows)))
    theirs = {
        row["id"]: float(
            authors_verdict(row, f"f({rows[number if number % 2 else (number + 1) % len(rows)]['input']})")
        )
        for number, row in enumerate(rows)
    }
    assert units(found)["cruxeval/input"] == theirs and 0.5 <= values(found)["cruxeval/input"] < 1


def test_calls_of_other_functions_are_none() -> None:
    assert predicted_call("[ANSWER]f(1)[/ANSWER]f(2)") == "f(1)"
    assert predicted_call("x.f(1)") is None
    assert predicted_call("(lambda: f(1))()") is None


def test_wrong_rows_and_options_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"code": "def f(): pass", "output": "None"}\n')
    with pytest.raises(DataError, match="'input' is missing"):
        Cruxeval(files=(str(file),)).items(subject())
    with pytest.raises(ValidationError, match="seconds: only with direction: input"):
        Cruxeval(seconds=9)
