"""Several conditions at once and negations, against `re`, exact arithmetic and `jsonschema` on every value of a small world."""

from __future__ import annotations

import itertools
import json
import random
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.inference.structure.characters import EVERY, Ranges
from ingot.inference.structure.constraint import compile_schema
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.words import split
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.structure.test_pattern import SHORT, patterns
from tests.inference.structure.walking import accepts, write

jsonschema: Any = pytest.importorskip("jsonschema", reason="needs jsonschema to compare with")


def allowed(schema: Any, texts: list[str], tokenizer: Tokenizer) -> set[str]:
    """Those of the texts that a constraint accepts; none if it says that there are none."""
    try:
        constraint = compile_schema(schema, tokenizer)
    except StructureError as error:
        assert "no text satisfies it" in str(error), error
        return set()
    return {text for text in texts if accepts(constraint, text)}


def spelled(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@settings(max_examples=60, deadline=None)
@given(pattern=patterns, other=patterns, least=st.integers(0, 2), most=st.integers(1, 4))
def test_patterns_lengths_and_exclusions(
    single_bytes: Tokenizer, pattern: str, other: str, least: int, most: int
) -> None:
    """On all texts of up to three of six letters."""
    first, second = (re.compile(one, re.ASCII) for one in (pattern, other))
    schema = {
        "type": "string",
        "allOf": [{"pattern": f"^(?:{pattern})$"}, {"pattern": other}],
        "minLength": least,
        "maxLength": most,
        "not": {"enum": ["a", "ab", "日"]},
    }
    expected = {
        spelled(text)
        for text in SHORT
        if first.fullmatch(text)
        and second.search(text)
        and least <= len(text) <= most
        and text not in ("a", "ab", "日")
    }
    assert allowed(schema, [spelled(text) for text in SHORT], single_bytes) == expected


def test_atoms_are_disjoint_and_as_few_as_can_be() -> None:
    sets: list[Ranges] = [((97, 122),), ((100, 110), (0xE000, 0xE005)), EVERY]
    atoms = split(sets, "here")
    assert sorted(atoms) == [
        ((0, 96), (123, 0xD7FF), (0xE006, 0x10FFFF)),
        ((97, 99), (111, 122)),
        ((100, 110),),
        ((0xE000, 0xE005),),
    ]


@settings(max_examples=40, deadline=None)
@given(
    divisor=st.sampled_from(
        ["1", "2", "3", "7", "12", "100", "0.1", "0.5", "0.25", "2.5", "0.01", "1.2", "0.03", "1e-3"]
    ),
    low=st.none() | st.integers(-60, 60),
    size=st.none() | st.integers(0, 400),
    whole=st.booleans(),
)
def test_multiples(single_bytes: Tokenizer, divisor: str, low: int | None, size: int | None, whole: bool) -> None:
    """Every number of up to three digits after the point near zero, by exact division; no more digits than the divisor has."""
    high = None if size is None else (low or 0) + size
    schema = {"type": "integer" if whole else "number", "multipleOf": json.loads(divisor)}
    schema |= ({} if low is None else {"minimum": low}) | ({} if high is None else {"maximum": high})
    texts = [str(value) for value in range(-450, 451)] + [f"{value / 100:.2f}" for value in range(-600, 600, 7)]
    texts += [f"{value / 1000:.3f}" for value in range(-90, 90)] + [f"{value / 10:.1f}" for value in range(-90, 90)]
    places = max(0, -int(Decimal(divisor).normalize().as_tuple().exponent))

    def fits(text: str) -> bool:
        value, digits = Fraction(text), len(text.partition(".")[2])
        inside = (low is None or value >= low) and (high is None or value <= high)
        written = digits <= (0 if whole else places)
        return inside and written and (value / Fraction(divisor)).denominator == 1

    expected = {text for text in texts if fits(text) and not (whole and text == "-0")}
    assert allowed(schema, texts, single_bytes) == expected


def test_multiples_of_a_cent_by_exact_arithmetic(small: Tokenizer) -> None:
    """`jsonschema` divides doubles (0.07 / 0.01 is not 7 there); with decimals it divides exactly."""
    schema = {"type": "number", "multipleOf": 0.01, "exclusiveMinimum": -5}
    validator = jsonschema.Draft202012Validator({**schema, "multipleOf": Decimal("0.01")})
    constraint = compile_schema(schema, small)
    for text in ("0.07", "0.29", "12", "-4.99"):
        assert accepts(constraint, text) and validator.is_valid(json.loads(text, parse_float=Decimal))
    for seed in range(30):
        written = write(constraint, small, random.Random(seed), patience=10)
        assert written is not None
        validator.validate(json.loads(written, parse_float=Decimal))


SCALARS: list[Any] = [None, True, False, *range(-4, 9), 0.5, 2.5, -1.5, "", "a", "b", "ab", "ba", "aab", "é"]
ARRAYS: list[Any] = [list(items) for n in range(4) for items in itertools.product([0, 1, 3.5, "a", None], repeat=n)]
OBJECTS: list[Any] = [
    {name: value for name, value in zip("ab", pair, strict=True) if value is not ...}
    for pair in itertools.product([..., 1, 2, "x", None], repeat=2)
]
PROPERTIES = {"properties": {"a": {"enum": [1, 2, "x", None]}, "b": True}, "additionalProperties": False}
TAGGED = {"properties": {"a": {"const": 1}}, "required": ["a"]}
EXACT: list[tuple[Any, list[Any]]] = [
    ({"not": {"type": ["string", "null"]}}, SCALARS + ARRAYS),
    ({"not": {"type": "number"}, "type": ["integer", "string", "boolean"]}, SCALARS),
    ({"not": {"enum": [1, "a", 2.5, None, False, ""]}}, SCALARS + ARRAYS),
    ({"not": {"not": {"enum": [1, "a", 2.5, None]}}}, SCALARS),
    ({"not": {"minimum": 2}, "type": ["number", "string"]}, SCALARS),
    ({"type": ["number", "string"], "not": {"exclusiveMaximum": 2, "maxLength": 1}}, SCALARS),
    ({"type": ["number", "string"], "not": {"allOf": [{"minLength": 1}, {"maximum": 3}]}}, SCALARS),
    ({"type": ["number", "string"], "not": {"anyOf": [{"minLength": 2}, {"maximum": 3}]}}, SCALARS),
    ({"type": ["number", "string"], "not": {"anyOf": [{"const": "a"}, {"const": 2.5}], "type": "number"}}, SCALARS),
    (
        {"type": ["integer", "string"], "if": {"minimum": 3}, "then": {"multipleOf": 2}, "else": {"maxLength": 1}},
        SCALARS,
    ),
    ({"type": ["integer", "string"], "if": {"type": "string"}, "then": {"pattern": "^a"}}, SCALARS),
    ({"type": ["integer", "string"], "if": {"enum": ["a", 3]}, "else": {"minimum": 5}}, SCALARS),
    ({"enum": SCALARS, "not": {"enum": [True, 1, "é"]}}, SCALARS),
    ({"oneOf": [{"enum": [1, 2]}, {"type": ["integer", "null"], "not": {"enum": [1, 2]}}]}, SCALARS),
    ({"type": "array", "items": {"enum": [0, 1, 3.5, "a", None]}, "uniqueItems": True}, ARRAYS),
    ({"type": "array", "items": {"enum": [0, 1, 1.0, "a"]}, "uniqueItems": True, "maxItems": 2}, ARRAYS),
    ({"type": "array", "uniqueItems": True, "maxItems": 1}, ARRAYS),
    ({"type": "array", "uniqueItems": False}, ARRAYS),
    ({"type": "array", "contains": {"type": "number"}}, ARRAYS),
    ({"type": "array", "contains": {"type": "number"}, "minContains": 0}, ARRAYS),
    ({"type": "array", "contains": {"type": "number"}, "minContains": 2, "maxItems": 2}, ARRAYS),
    ({"type": "array", "contains": {"type": "number"}, "maxContains": 2, "minItems": 2}, ARRAYS),
    ({"type": "array", "contains": {"enum": [0, "a"]}, "minContains": 0, "maxContains": 1}, ARRAYS),
    ({"type": "array", "contains": {"enum": [0, "a"]}, "items": {"type": ["string", "number"]}}, ARRAYS),
    ({"type": "array", "contains": True, "minContains": 2, "minItems": 1}, ARRAYS),
    ({"type": "array", "contains": False}, ARRAYS),
    ({"type": "array", "not": {"minItems": 2}}, ARRAYS),
    ({"type": "object", **PROPERTIES, "not": TAGGED}, OBJECTS),
    ({"type": "object", **PROPERTIES, "not": {"required": ["a", "b"]}}, OBJECTS),
    ({"type": "object", **PROPERTIES, "if": TAGGED, "then": {"required": ["b"]}}, OBJECTS),
    ({"type": "object", **PROPERTIES, "if": TAGGED, "else": {"properties": {"b": False}}}, OBJECTS),
    ({"type": "object", **PROPERTIES, "if": {"properties": {"a": {"type": "string"}}}, "then": False}, OBJECTS),
    ({"type": "object", **PROPERTIES, "if": {"required": ["b"]}, "then": TAGGED, "else": {"not": TAGGED}}, OBJECTS),
]


def test_a_union_by_tag_of_many_branches(single_bytes: Tokenizer) -> None:
    """Twelve tags, each with an `if` of its own, as schemas in the wild say it."""
    tags = [f"kind{number}" for number in range(12)]
    schema = {
        "type": "object",
        "properties": {
            "tag": {"enum": tags, "description": "which"},
            "a": {"type": "integer"},
            "b": {"type": "string"},
        },
        "required": ["tag"],
        "allOf": [
            {
                "if": {"properties": {"tag": {"const": tag}}, "required": ["tag"]},
                "then": {"required": ["a"], "properties": {"a": {"minimum": number}}}
                if number % 3
                else {"required": ["b"]},
            }
            for number, tag in enumerate(tags)
        ],
    }
    validator = jsonschema.Draft202012Validator(schema)
    values = [{"tag": tag, **rest} for tag in tags for rest in ({}, {"a": 5}, {"b": "x"}, {"a": 11, "b": ""})]
    texts = {json.dumps(value): value for value in values}
    expected = {text for text, value in texts.items() if validator.is_valid(value)}
    assert allowed(schema, list(texts), single_bytes) == expected and 12 <= len(expected) < len(texts)


@pytest.mark.parametrize("number", range(len(EXACT)))
def test_exactly_what_jsonschema_accepts(number: int, single_bytes: Tokenizer) -> None:
    schema, values = EXACT[number]
    validator = jsonschema.Draft202012Validator(schema)
    texts = {json.dumps(value, ensure_ascii=False): value for value in values}
    expected = {text for text, value in texts.items() if validator.is_valid(value)}
    assert allowed(schema, list(texts), single_bytes) == expected
    assert len(expected) < len(texts) or number in (17, 19)  # two that assert nothing


TRUE_IS_NOT_ONE = {
    "type": "object",
    "required": ["a"],
    "allOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": True}}}],
}


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        (TRUE_IS_NOT_ONE, ['{"a": true}', '{"a": 1}']),
        (
            {"type": "array", "allOf": [{"items": {"enum": [0]}}, {"items": {"enum": [False]}}]},
            ["[]", "[0]", "[false]"],
        ),
        ({"type": "object", "not": {"required": ["p"]}}, ["{}", '{"b": 1}', '{"p": 1}']),
        (
            {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}, "additionalProperties": True},
            ['{"c": 1}', '{"a": 1}', '{"a": 1, "b": 2}'],
        ),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}], "contains": {"type": "string"}},
            ['[1, "a"]', "[1]", '["a"]'],
        ),
    ],
)
def test_what_was_once_wrong(schema: Any, texts: list[str], single_bytes: Tokenizer) -> None:
    judge = jsonschema.Draft202012Validator(schema)
    expected = {text for text in texts if judge.is_valid(json.loads(text))}
    assert allowed(schema, texts, single_bytes) == expected


def _twice(depth: int) -> Any:
    """What refers twice to what refers twice …"""
    names = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    return {"$ref": "#/$defs/a0", "$defs": names | {f"a{depth}": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        _twice(30),
        {"not": _twice(30) | {"type": "string"}, "$defs": _twice(30)["$defs"]},
        {"type": "string", "maxLength": 20, "pattern": f"^(?:{'|'.join(map(chr, range(0x4E00, 0x4E00 + 8000)))})*$"},
        {"allOf": [{"patternProperties": {"^a": {"type": "integer"}}}, {"additionalProperties": False}]},
        {"type": "object", "required": ["a", "a"], "minProperties": 2},
    ],
    ids=["references", "negated references", "characters", "patterns and additional ones", "required twice"],
)
def test_what_would_take_for_ever_or_be_wrong_is_refused(schema: Any, single_bytes: Tokenizer) -> None:
    with pytest.raises(StructureError):
        compile_schema(schema, single_bytes)
