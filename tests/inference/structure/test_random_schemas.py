"""Random JSON schemas: what the masks write satisfies `jsonschema`, and so does what they allow of small changes to it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ingot.inference.structure.constraint import compile_schema
from ingot.inference.structure.errors import StructureError
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.structure.walking import accepts, write

jsonschema: Any = pytest.importorskip("jsonschema", reason="needs jsonschema to compare with")
NAMES = ["a", "b", "ab", "é", 'q"']
SIMPLE = [1, 0, -3, 77, 2.5, "a", "b", "ab", "é", "", None, True]
VALUES = [*SIMPLE, [], {}, [1], {"a": 2}]


def scalar(chance: random.Random) -> Any:
    low = chance.randint(-20, 20)
    return chance.choice(
        [
            {"type": "integer", "minimum": low, "maximum": low + chance.randint(0, 150)},
            {"type": "number", "exclusiveMinimum": low / 4, "maximum": low / 4 + 7.25},
            {"type": "string", "minLength": chance.randint(0, 2), "maxLength": chance.randint(2, 5)},
            {"enum": chance.sample(VALUES, chance.randint(1, 4))},
            {"type": chance.sample(["string", "null", "boolean", "integer"], 2)},
            {"type": "string", "pattern": chance.choice(["^a+", "b", "^[^x]{2}"])},
            {"type": "string", "format": chance.choice(["date", "ipv4", "uuid", "time", "ipv6"])},
            {"const": chance.choice(VALUES)},
            {"type": "integer", "multipleOf": chance.randint(2, 12), "minimum": low},
            {"type": "string", "pattern": chance.choice(["^a+", "b", "^[^x]{2}"]), "maxLength": chance.randint(2, 6)},
            True,
        ]
    )


def schema(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.2:
        return scalar(chance)
    kind = chance.choice(["object", "object", "array", "anyOf", "allOf", "oneOf", "$ref"])
    inner = [schema(chance, depth - 1) for _ in range(3)]
    if kind == "$ref":
        return {"$ref": f"#/$defs/{chance.choice('xy')}"}
    if kind == "object":
        names = chance.sample(NAMES, 3)
        required = [name for name in names if chance.random() < 0.5]
        more = chance.choice([False, False, True, scalar(chance)])
        properties = dict(zip(names, inner, strict=True))
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}
    if kind == "array":
        least = chance.randint(0, 2)
        return {"type": "array", "prefixItems": inner[1:], "items": inner[0], "minItems": least, "maxItems": least + 2}
    return {kind: inner[: chance.randint(1, 2)]}


def change(value: Any, chance: random.Random) -> Any:
    """The value with one part left out or replaced."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        if chance.random() < 0.3:
            return {key: one for key, one in value.items() if key != name}
        return {key: change(one, chance) if key == name else one for key, one in value.items()}
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return value[:at] + ([change(value[at], chance)] if chance.random() < 0.7 else []) + value[at + 1 :]
    return chance.choice(VALUES)


def random_document(seed: int) -> tuple[dict[str, Any], random.Random]:
    chance = random.Random(seed)
    return {"anyOf": [schema(chance, 3)], "$defs": {"x": schema(chance, 2), "y": scalar(chance)}}, chance


def test_most_random_schemas_can_be_kept_and_written(small: Tokenizer) -> None:
    """Those below would pass if all were refused."""
    written = 0
    for seed in range(60):
        document, chance = random_document(seed)
        try:
            written += write(compile_schema(document, small), small, chance, patience=25) is not None
        except StructureError:
            continue
    assert written >= 40, written


@pytest.mark.parametrize("seed", range(60))
def test_random_schema(seed: int, small: Tokenizer) -> None:
    document, chance = random_document(seed)
    try:
        constraint = compile_schema(document, small)
    except StructureError:  # what cannot be kept exactly, or nothing satisfies
        return
    validator = jsonschema.Draft202012Validator(document, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    for _ in range(3):
        try:
            written = write(constraint, small, chance, patience=25)
        except StructureError:  # at a reference that is nothing but itself, which no text satisfies
            assert "#/$defs/x" in json.dumps(document["$defs"]["x"])
            return
        if written is None:
            continue
        validator.validate(json.loads(written))
        for _ in range(5):
            other = change(json.loads(written), chance)
            if accepts(constraint, json.dumps(other, ensure_ascii=False)):
                validator.validate(other)
