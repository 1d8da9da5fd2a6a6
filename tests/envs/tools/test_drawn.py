"""Arguments that are drawn from a schema fit it, whatever it allows."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest

from ingot.envs.tools.drawn import UnknownSchemaError, draw, takes_text
from ingot.envs.tools.worker import check, describe


def search(
    words: list[str], deep: bool, kind: Literal["a", 3], weights: dict[str, float], least: int | None = None
) -> str:
    return ""


def test_they_are_those_that_a_function_takes() -> None:
    schema, rng = describe(search), random.Random(1)
    drawn = [draw(schema["parameters"], rng, ["x", "y"]) for _ in range(200)]
    assert not [check(arguments, schema) for arguments in drawn if check(arguments, schema)]
    assert {"least" in arguments for arguments in drawn} == {True, False}
    assert {arguments["kind"] for arguments in drawn} == {"a", 3}


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ({"type": "integer", "minimum": 3, "maximum": 5}, 3, 5),
        ({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 5}, 4, 4),
        ({"type": "integer", "minimum": 100}, 100, 200),
        ({"type": "integer", "maximum": -7}, -100, -7),
        ({"type": "number", "minimum": 0.2, "maximum": 0.4}, 0.2, 0.4),
        ({"type": ["integer", "null"], "minimum": 1}, 1, 100),
    ],
)
def test_bounds(schema: dict[str, Any], low: float, high: float) -> None:
    rng = random.Random(2)
    drawn = [value for _ in range(200) if (value := draw(schema, rng, ["x"])) is not None]
    assert drawn and all(low <= value <= high for value in drawn)


def test_what_says_nothing_is_not_guessed() -> None:
    with pytest.raises(UnknownSchemaError):
        draw({"$ref": "#/defs/number"}, random.Random(0), ["x"])
    assert takes_text({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}})
    assert not takes_text({"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}})
