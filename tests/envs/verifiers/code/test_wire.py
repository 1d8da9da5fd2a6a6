"""The wire between a program and its tests: values are read exactly, and nothing that a program sends is more than data."""

from __future__ import annotations

import builtins
import json
import os
from collections import deque
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from ingot.envs.verifiers.code import checks as code_checks
from ingot.envs.verifiers.code import wire
from ingot.envs.verifiers.code.tests import Asserts, Calls, FunctionCall
from ingot.envs.verifiers.code.verify import verify
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits

PLAIN = (type(None), bool, int, float, complex, str, bytes, range, list, tuple, set, frozenset, deque, dict)
WHOLE = some.integers() | some.integers(-(2**80), 2**80)
KEYS = (
    some.none()
    | some.booleans()
    | WHOLE
    | some.floats(allow_nan=False)
    | some.text(max_size=6)
    | some.binary(max_size=6)
)
VALUES = some.recursive(
    KEYS | some.complex_numbers(allow_nan=False) | some.builds(range, WHOLE, WHOLE, WHOLE.filter(bool)),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.lists(inner, max_size=3).map(tuple)
        | some.lists(inner, max_size=3).map(deque)
        | some.sets(KEYS, max_size=3)
        | some.frozensets(KEYS, max_size=3)
        | some.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)
KINDS = some.sampled_from(
    [*wire.LEAVES, *wire.COLLECTIONS, "complex", "range", "dict", "builtin", "object", "callback", "error", "__class__"]
)
NAMES = some.sampled_from([*dir(builtins), "__dict__", "__doc__", "StandIn", "nan", "0x1.8p+1", "0x1ffffffffffffffff"])
HOSTILE = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5) | NAMES,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(KINDS | NAMES, inner, max_size=2),
    max_leaves=12,
)


class Reference:
    """What stands for an object."""


def refuse(value: object) -> dict[str, Any]:
    raise AssertionError(f"{value!r} is plain data")


def find(kind: str, held: Any) -> object:
    assert (kind == "object" and type(held) is int) or (kind == "builtin" and held in wire.BUILTINS)
    return Reference()


def is_plain(value: object) -> bool:
    """Whether it is data of built-in types through and through, or a reference."""
    if type(value) is dict:
        return all(map(is_plain, [*value, *value.values()]))
    if type(value) in (list, tuple, set, frozenset, deque):
        return all(map(is_plain, value))  # type: ignore[call-overload]
    return type(value) in (*PLAIN, Reference)


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    written = json.loads(json.dumps(wire.encode(value, refuse)))
    read = wire.decode(written, find)
    assert read == value and type(read) is type(value)


@given(HOSTILE)
@example({"builtin": "__dict__"})
@example({"builtin": "__builtins__"})
@example({"object": {"builtin": "max"}})
@example({"dict": [[[], 1]]})
@example({"dict": [[1, 2], [True, 3]]})
@example({"set": "aa"})
@example({"range": [0, 1, 0]})
@example({"range": [True, 1, 2]})
@example({"int": "0x" + "f" * 2000})
@example({"int": 12})
@example({"float": "0x1p99999"})
@example({"complex": [1, 2]})
@example({"bytes": None})
@example(1e300)
@example(2**60)
def test_nothing_but_plain_data_is_read(data: Any) -> None:
    """Whatever a program sends is a value of built-in types, a reference or a WireError."""
    try:
        assert is_plain(wire.decode(data, find))
    except wire.WireError:
        return


@pytest.mark.parametrize(("before", "after"), [("[", "]"), ('{"tuple": [', "]}"), ('{"dict": [[1, ', "]]}")])
def test_values_that_are_nested_too_deep_are_refused(before: str, after: str) -> None:
    deepest = json.loads(before * wire.DEEPEST + "0" + after * wire.DEEPEST)
    assert wire.encode(wire.decode(deepest, find), refuse)
    with pytest.raises(wire.WireError, match="too deep"):
        wire.decode(json.loads(before * (wire.DEEPEST + 1) + "0" + after * (wire.DEEPEST + 1)), find)


TESTS = f"""
x = f(1)
f(x)
f([3], {{1: 2}}, {{4}})
y = f(f(x))
for item in f(2): f(item)
assert x == {"0x" + "5" * 40}
assert sorted([y, x]) == [max(abs(item), len(str(item))) for item in (x, y)] == {"0x" + "7" * 40}
assert f(lambda *given: f(*given)) == {"0x" + "6" * 40}
"""
REPLIES = some.one_of(
    HOSTILE.map(lambda held: {"value": held}),
    some.tuples(HOSTILE, some.lists(some.none() | HOSTILE, max_size=4)).map(
        lambda both: {"value": both[0], "changed": both[1]}
    ),
    some.tuples(NAMES, NAMES).map(lambda said: {"error": list(said)}),
    some.tuples(some.integers(-3, 3), some.lists(HOSTILE, max_size=2)).map(
        lambda both: {"callback": both[0], "arguments": both[1]}
    ),
    HOSTILE,
)
BUILTINS = [[name, {"builtin": name}] for name in vars(builtins)]
STAND_INS = [
    [name, {"object": 5}] for name in ("max", "abs", "len", "sorted", "str", "isinstance", "_passed", "_failed")
]


@given(some.lists(REPLIES, max_size=12))
@example([{"value": {"builtin": "__dict__"}}, {"value": 1, "changed": [None, {"dict": BUILTINS}]}])
@example([{"value": {"builtin": "__dict__"}}, {"value": 1, "changed": [None, {"dict": BUILTINS + STAND_INS}]}])
@example([{"value": {"dict": STAND_INS}}, *[{"value": {"object": 5}, "changed": [None, {"dict": STAND_INS}]}] * 9])
def test_no_conversation_passes_a_test_or_changes_the_judge(replies: list[Any]) -> None:
    """A program that says anything at all, against asserts that no value fulfils: nothing passes, nothing here changes."""
    before = dict(vars(builtins))
    messages = [json.dumps(reply).encode() for reply in ({"loaded": True}, {"value": {"object": 0}}, *replies)]
    reading, theirs = os.pipe()
    writing = os.open("/dev/null", os.O_WRONLY)
    try:
        os.write(theirs, b"".join(len(data).to_bytes(4, "big") + data for data in messages))
        os.close(theirs)
        order = {"tests": TESTS, "prelude": "", "names": ["f"], "modules": [], "entry_points": [], "share": True}
        report = code_checks.check(order, reading, writing)
    finally:
        os.close(reading)
        os.close(writing)
    assert report["passed"] == 0 < report["total"] and report["problem"], report
    after = dict(vars(builtins))
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)


SPEAK = """
import builtins, json, os, sys
def send(message):
    data = json.dumps(message).encode()
    os.write(5, len(data).to_bytes(4, "big") + data)
def receive():
    size, data = int.from_bytes(os.read(4, 4), "big"), b""
    while len(data) < size: data += os.read(4, size - len(data))
    return json.loads(data or b"null") or sys.exit()
every = [[name, {"builtin": name}] for name in dir(builtins)]
send({"loaded": True})
receive(); send({"value": {"object": 0}})
"""
REFILL = """
receive(); send({"value": {"builtin": "__dict__"}})
receive(); send({"value": 1, "changed": [None, {"dict": every + [%s]}]})
while True: receive(); send({"value": %s})
"""
FORGERIES = {  # what the program does, and tests that only a right one passes
    "another function for one of the judge's": (
        SPEAK + REFILL % ("['sorted', {'builtin': 'bool'}]", 9),
        "f(f(3))\nassert sorted(f(2))",
    ),
    "a stand-in for abs": (
        SPEAK + REFILL % ("['abs', {'object': 5}]", -1),
        "f(f(3))\nassert abs(f(3) - 9) < 1e-6",
    ),
    "a stand-in for isinstance": (
        SPEAK + REFILL % ("['isinstance', {'object': 5}]", "True"),
        "f(f(3))\nassert isinstance(f(2), int) and f(2) is not True",
    ),
    "the judge's own exec": (
        SPEAK + "receive(); send({'value': {'builtin': 'exec'}})\nwhile True: receive(); send({'value': 0})",
        "done = f(1)\ndone('raise SystemExit')\nassert f(2) == 4",
    ),
    "memory of the judge as an array": (
        "class A:\n    __array_interface__ = {'shape': (1,), 'typestr': '|u1', 'data': (64, False), 'version': 3}\n"
        "def f(x): return A()",
        "import numpy\nassert (numpy.asarray(f(2)) == 4).all()",
    ),
    "an end that the tests catch": (
        "import os\ndef f(x): return x * x if x < 3 else os._exit(0)",
        "assert f(2) == 4\ntry:\n    f(3)\nexcept:\n    pass",
    ),
    "an exception that takes more than a text": (
        "def f(x): raise ExceptionGroup('a', [ValueError()])",
        "try:\n    f(2)\nexcept TypeError:\n    pass\nassert f(2) == 4",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_no_reply_earns_a_reward(pool: Pool, name: str) -> None:
    source, tests = FORGERIES[name]
    verdict = verify(source, Asserts(tests), pool, Limits(5.0))
    assert verdict.reward == 0.0 and verdict.problem and "without a verdict" not in verdict.problem, verdict


def test_functions_of_python_that_a_program_returns_are_its_own(pool: Pool) -> None:
    """They work where tests call them or hand them back, and are not the judge's."""
    source = "def f(x): return {'s': sorted, 'l': len, 't': int}[x]\ndef g(h, x): return h(x)"
    tests = "assert f('s')([2, 1]) == [1, 2]\nassert g(f('l'), 'abc') == 3\nassert f('t')('7') == 7\nassert g(len, 'ab') == 2"
    assert verify(source, Asserts(tests), pool, Limits(10.0)).reward == 1.0
    assert verify(source, Asserts("assert f('t') is int"), pool, Limits(10.0)).reward == 0.0


FORGE = """
import os, sys
frame = sys._getframe()
while "request" not in frame.f_locals: frame = frame.f_back
nonce = frame.f_locals["request"]["nonce"].encode()
data = b'{"nonce": "' + nonce + b'", "answers": [' + %s + b']}'
data = len(data).to_bytes(4, "big") + data
while data: data = data[os.write(3, data):]
os._exit(0)
"""
ANSWERS = [
    """b'{"value": ' + b'[' * 900 + b']' * 900 + b'}'""",
    """b'{"value": ' + b'[' * 10**5 + b']' * 10**5 + b'}'""",
    """b'{"value": ' + b'{"dict": [[1, ' * 300 + b'1' + b']]}' * 300 + b'}'""",
    """b'{"value": ' + b'9' * 10**5 + b'}'""",
    """b'{"value": {"int": "0x' + b'f' * 10**5 + b'"}}'""",
    """b'{"value": {"tuple": "ab"}}'""",
    """b'{"value": {"dict": [[1, 3], [1, 2]]}}'""",
    """b'{"value": {"dict": 1}}'""",
    """b'{"value": {"set": [[[1]], {}]}}'""",
    """b'{"value": {"int": null}}'""",
    """b'{"value": NaN}'""",
    """b'{"value": 1e999}'""",
    """b'{"value": "\\xff\\xfe"}'""",
    """b'{"value": "\\\\ud800"}'""",
    """b'{"value": {}}'""",
    """b'{}'""",
    """b'[[]]'""",
    """b'null'""",
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_hostile_answers_to_calls_are_wrong_and_no_failure(pool: Pool, answer: str) -> None:
    """A program that knows where its answers go writes them itself, in any form."""
    tests = Calls("f", [FunctionCall([3], expected) for expected in (["a", "b"], {1: 2}, {3}, 9, 9.5, None)])
    source = FORGE % " + b', ' + ".join([f"({answer})"] * len(tests.calls))
    verdict = verify(source, tests, pool, Limits(10.0, output=10**7), "share")
    assert verdict.reward == 0.0 and verdict.problem.startswith(("call 1: ", "no values came back (status 0)")), verdict
