"""JSON answers against schemas: the verdicts of another implementation (jsonschema-rs, in Rust), and what is no JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingot.envs.verifiers.errors import VerifierError
from ingot.envs.verifiers.text.json_schema import DEEPEST, LONGEST, fits_schema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0},
        "mail": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "maxItems": 2},
    },
    "required": ["name"],
    "additionalProperties": False,
}
TREE = {"$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "$ref": "#/$defs/node"}
EITHER = {"oneOf": [{"type": "integer", "multipleOf": 3}, {"type": "integer", "multipleOf": 5}], "not": {"const": 9}}
VALUES: list[Any] = [
    {"name": "Ada"},
    {"name": "ada"},
    {"name": ""},
    {"name": "Ada", "age": 36},
    {"name": "Ada", "age": 36.0},
    {"name": "Ada", "age": -1},
    {"name": "Ada", "age": True},
    {"name": "Ada", "tags": ["a", "b"]},
    {"name": "Ada", "tags": ["a", "a"]},
    {"name": "Ada", "tags": ["c"]},
    {"name": "Ada", "more": 1},
    {"name": "Ada", "mail": "ada at home"},
    {"name": "Ada", "mail": "ada@example.com"},
    {},
    [],
    [[], [[]]],
    [1],
    None,
    3,
    5,
    9,
    15,
    7,
    "text",
]


@pytest.mark.parametrize("schema", [PERSON, TREE, EITHER, {}, True, False, {"type": "number"}])
def test_verdicts_are_those_of_another_implementation(schema: Any) -> None:
    peer = pytest.importorskip("jsonschema_rs").validator_for(schema, validate_formats=True)
    assert [fits_schema(json.dumps(value), schema) for value in VALUES] == [peer.is_valid(value) for value in VALUES]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "Here it is: {}",
        "```json\n{}\n```",
        "{} {}",
        "{'a': 1}",
        "NaN",
        "[Infinity]",
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        "[" * (DEEPEST + 2) + "]" * (DEEPEST + 2),
        '"' + "x" * LONGEST + '"',
        "9" * 10_000,
    ],
)
def test_what_is_no_whole_json_value_fits_nothing(content: str) -> None:
    assert not fits_schema(content, True)


def test_a_schema_that_cannot_be_used_is_an_error_of_the_verifier() -> None:
    with pytest.raises(VerifierError, match="not a JSON schema"):
        fits_schema("{}", {"type": "objekt"})
    with pytest.raises(VerifierError, match="refers to something unknown"):
        fits_schema("{}", {"$ref": "http://localhost:9/other.json"})
