"""Verifies a function by calls: they are made in a sandbox, and the values that come back are compared here.

Both sides of a comparison are in the form of `wire.py`, JSON whose keys are strings: no set or dict is built from what a
program sent, so it cannot choose keys that collide.
"""

from __future__ import annotations

import json
import math
import secrets
from typing import Any

from ingot.envs.verifiers.code import wire
from ingot.envs.verifiers.code.asserts import CANDIDATE, part
from ingot.envs.verifiers.code.tests import OVER, Calls
from ingot.envs.verifiers.errors import VerifierError
from ingot.sandbox.pool import Pool
from ingot.sandbox.program import Limits
from ingot.sandbox.worker import SandboxError

CLOSE = 1e-9
NUMBERS = {"int": lambda held: int(held, 16), "float": float.fromhex}


def verify_calls(source: str, tests: Calls, pool: Pool, limits: Limits) -> tuple[int, int, str]:
    """How many calls return what they must, how many there are, and the first problem."""
    nonce = secrets.token_hex(16)
    order = {
        "source": source,
        "function": tests.function,
        "nonce": nonce,
        "calls": [
            {
                "arguments": [_plain(item) for item in call.arguments],
                "keywords": {name: _plain(item) for name, item in call.keywords.items()},
            }
            for call in tests.calls
        ],
    }
    expected = [_plain(call.expected) for call in tests.calls]
    try:
        outcome = pool.run(part(CANDIDATE, order), limits)
    except SandboxError as error:
        raise VerifierError(error.problem, place="code verifier", fix=error.fix, part="sandbox") from error
    if outcome.ended_by not in ("exit", "signal"):
        return 0, len(expected), f"{OVER}{outcome.ended_by}"
    answers = _answers(outcome.result, nonce, len(expected))
    if answers is None:
        last = outcome.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return 0, len(expected), f"no values came back (status {outcome.exit}): {last[:500]}"
    right = [_is_right(answer, value) for answer, value in zip(answers, expected, strict=True)]
    wrong = "" if all(right) else f"call {right.index(False) + 1}: {_shown(answers[right.index(False)])}"
    return sum(right), len(right), wrong


def _plain(value: object) -> Any:
    """A value of the tests as JSON."""

    def refuse(item: object) -> dict[str, Any]:
        problem = f"{type(item).__name__} is not plain data"
        raise VerifierError(problem, place="code verifier", fix="give tests of built-in types, or asserts")

    return json.loads(json.dumps(wire.encode(value, refuse)))


def _answers(result: bytes, nonce: str, count: int) -> list[Any] | None:
    """The answers in what a program wrote; None if they are not there."""
    try:
        report = json.loads(result[4:])
    except (ValueError, RecursionError):
        return None
    found = report.get("answers") if isinstance(report, dict) and report.get("nonce") == nonce else None
    return found if isinstance(found, list) and len(found) == count else None


def _shown(answer: Any) -> str:
    try:
        return json.dumps(answer)[:500]
    except RecursionError:  # what is read at one depth of calls is too deep to be written at another
        return "a value that is nested too deep"


def _is_right(answer: Any, expected: Any) -> bool:
    try:
        return isinstance(answer, dict) and "value" in answer and same(answer["value"], expected)
    except (ValueError, TypeError, RecursionError, OverflowError):  # it is not in the form of a value
        return False


def same(one: Any, other: Any) -> bool:
    """Whether two values in the form of `wire.py` are equal: True is not 1, a tuple is a list, floats to nine digits."""
    numbers = _number(one), _number(other)
    if None not in numbers:
        return _close(*numbers)
    items, others = _items(one), _items(other)
    if items is not None and others is not None:
        return len(items) == len(others) and all(map(same, items, others))
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return type(one) is type(other) and one == other
    if one.keys() != other.keys():
        return False
    ((kind, held),) = one.items()
    if kind in ("set", "frozenset"):
        return sorted(map(json.dumps, held)) == sorted(map(json.dumps, other[kind]))
    if kind == "dict":
        mine, theirs = ({json.dumps(key): value for key, value in pairs} for pairs in (held, other[kind]))
        if len(mine) != len(held):
            raise ValueError("it has the same key twice")
        return mine.keys() == theirs.keys() and all(same(mine[key], theirs[key]) for key in mine)
    return held == other[kind]


def _number(value: Any) -> int | float | None:
    if isinstance(value, dict) and len(value) == 1:
        ((kind, held),) = value.items()
        return NUMBERS[kind](held) if kind in NUMBERS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return one == other or math.isclose(one, other, rel_tol=CLOSE) or (math.isnan(one) and math.isnan(other))


def _items(value: Any) -> list[Any] | None:
    """The items of a list or tuple; None if it is neither."""
    held = value["tuple"] if isinstance(value, dict) and value.keys() == {"tuple"} else value
    return held if isinstance(held, list) else None
