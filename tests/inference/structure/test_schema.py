"""JSON schemas: what is written satisfies `jsonschema`, what satisfies it can be written, and nothing is passed over."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ingot.inference.structure.conjunction import without
from ingot.inference.structure.constraint import Constraint, compile_json, compile_schema
from ingot.inference.structure.errors import StructureError
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.structure.documents import CASES
from tests.inference.structure.walking import accepts, cut, write

jsonschema: Any = pytest.importorskip("jsonschema", reason="needs jsonschema to compare with")
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER  # with the packages beside jsonschema in pyproject.toml
names = pytest.mark.parametrize("name", CASES)


def check(value: Any, schema: Any) -> None:
    jsonschema.Draft202012Validator(schema, format_checker=CHECKER).validate(value)


def follows(constraint: Constraint, tokens: list[int]) -> bool:
    """Whether the masks allow each of these tokens in turn, and the end after them."""
    state = constraint.start()
    for token in tokens:
        if not state.mask()[token]:
            return False
        state = state.advance(token)
    return state.complete


@names
def test_the_cases_are_what_they_claim(name: str) -> None:
    schema, valid, invalid = CASES[name]
    for value in valid:
        check(value, schema)
    for value in invalid:
        with pytest.raises(jsonschema.ValidationError):
            check(value, schema)


@names
def test_valid_documents_are_accepted_and_invalid_ones_are_not(name: str, small: Tokenizer) -> None:
    schema, valid, invalid = CASES[name]
    constraint = compile_schema(schema, small)
    pieces = {small.decode_bytes((id,)): id for id in range(small.vocabulary_size) if id not in small.special.values()}
    chance = random.Random(name)
    for value in valid:
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        for text in (compact, json.dumps(value, ensure_ascii=False)):
            assert accepts(constraint, text), text
            assert follows(constraint, cut(text.encode(), pieces, 8, chance)), text
            assert not accepts(constraint, text + " ") and not accepts(constraint, " " + text)
            assert not accepts(constraint, text[:-1]) or isinstance(value, int | float)
    for value in invalid:
        assert not accepts(constraint, json.dumps(value, ensure_ascii=False)), value


@names
def test_what_small_vocabularies_write_is_valid(name: str, small: Tokenizer) -> None:
    _check_written(name, small, 4)


@names
def test_what_smollm2_writes_is_valid(name: str, smollm2: Tokenizer) -> None:
    _check_written(name, smollm2, 4)


@pytest.mark.parametrize("name", ["person", "expression", "pattern escapes", "long", "tree", "open"])
def test_what_o200k_writes_is_valid(name: str, o200k: Tokenizer) -> None:
    _check_written(name, o200k, 2)


def _check_written(name: str, tokenizer: Tokenizer, rounds: int) -> None:
    schema = CASES[name][0]
    constraint = compile_schema(schema, tokenizer)
    for seed in range(rounds):
        written = write(constraint, tokenizer, random.Random(f"{name}{seed}"))
        assert written is not None
        check(json.loads(written), schema)


def test_any_spelling_of_a_string(single_bytes: Tokenizer) -> None:
    constraint = compile_schema({"type": "string", "maxLength": 2}, single_bytes)
    for text in ('"\\u00e9\\n"', '"\\ud83d\\ude00x"', '"\\/\\""', '"\\uABcd"'):
        assert len(json.loads(text)) <= 2 and accepts(constraint, text), text
    # a lone surrogate is no character; a control character must be escaped; invalid escapes and bytes
    for text in ('"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"a\nb"', '"\\x41"', '"\\u12"', '"abc"'):
        assert not accepts(constraint, text), text
    for data in (b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe6\x97"'):
        assert not accepts(constraint, data), data


def test_white_space_is_bounded(single_bytes: Tokenizer) -> None:
    constraint = compile_json(single_bytes)
    for text in ('{"a":1,"b":[1,2]}', '{"a": 1, "b": [1, 2]}', '{"a":1, "b": [1,2]}'):
        assert accepts(constraint, text), text
    for text in ('{"a":  1}', '{ "a":1}', '{"a" :1}', '{"a":1 }', '{"a":1}\n', "{ }", '{"b":[ 1]}'):
        assert not accepts(constraint, text), text
    for text in ("[]", "1", '"a"', "", "{", '{"a"}', '{"a":1,}', '{"a":01}', '{"a":+1}', '{"a":1.}', '{"a":NaN}'):
        assert not accepts(constraint, text), text


def test_properties_come_in_the_declared_order(single_bytes: Tokenizer) -> None:
    constraint = compile_schema({"properties": {"b": {"const": 1}, "a": {"const": 2}}}, single_bytes)
    assert accepts(constraint, '{"b":1,"a":2}')
    assert not accepts(constraint, '{"a":2,"b":1}')
    assert not accepts(constraint, '{"b":1,"b":1}')


@pytest.mark.parametrize(
    ("schema", "pointer", "problem"),
    [
        ({"not": {"type": "integer"}}, "#/not/type", "'type' cannot be negated"),
        ({"not": {"anyOf": [{"pattern": "a"}]}}, "#/not/anyOf/0/pattern", "'pattern' cannot be negated"),
        ({"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"oneOf": [{}]}}}, "#/$defs/x/oneOf", "cannot be negated"),
        ({"not": {"const": {}}}, "#", "an object that is excluded"),
        ({"type": "array", "not": {"enum": [[], 1]}}, "#", "an array that is excluded"),
        ({"if": {"format": "date"}, "then": {"maxLength": 3}}, "#/if/format", "'format' cannot be negated"),
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems", "some given values"),
        ({"prefixItems": [{"const": 1}], "uniqueItems": True}, "#/uniqueItems", "some given values"),
        ({"items": {"enum": list(range(20))}, "uniqueItems": True}, "#/uniqueItems", "5,000 states"),
        ({"type": "integer", "multipleOf": 10007}, "#/multipleOf", "5,000 states"),
        ({"type": "integer", "multipleOf": 0}, "#/multipleOf", "'multipleOf'"),
        ({"type": "string", "pattern": "a.{9}b", "maxLength": 3000}, "#", "5,000 states"),
        ({"items": {}, "contains": {"format": "date"}, "maxContains": 1}, "#/contains/format", "cannot be negated"),
        ({"properties": {"a/b~": {"dependentSchemas": {}}}}, "#/properties/a~1b~0/dependentSchemas", "'dependent"),
        ({"propertyNames": {"maxLength": 3}}, "#/propertyNames", "'propertyNames'"),
        (
            {"$defs": {"x": {"dependentRequired": {}}}, "$ref": "#/$defs/x"},
            "#/$defs/x/dependentRequired",
            "'dependentRequired'",
        ),
        ({"type": "string", "format": "iri"}, "#/format", "'iri'"),
        ({"type": "string", "pattern": "(?=a)"}, "#/pattern '(?=a)', offset 0", "look-around"),
        ({"allOf": [{"format": "date"}, {"format": "time"}]}, "#/format", "'format' is given twice"),
        ({"allOf": [{"multipleOf": 0.5}, {"multipleOf": 2}]}, "#/multipleOf", "'multipleOf' is given twice"),
        ({"allOf": [{"contains": {}}, {"contains": True}]}, "#/contains", "'contains' is given twice"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "#/oneOf", "may hold at once"),
        (
            {"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]},
            "#/oneOf",
            "may hold at once",
        ),
        ({"anyOf": [{"oneOf": [True, {"type": "null"}]}]}, "#/anyOf/0/oneOf", "may hold at once"),
        ({"properties": {"a": {}, "b": {}}, "minProperties": 1}, "#/minProperties", "'minProperties'"),
        ({"properties": {"a": {}}, "patternProperties": {"b": {}}}, "#/patternProperties", "alone"),
        ({"enum": ["a", "b"], "pattern": "a"}, "#/pattern", "'enum' beside 'pattern'"),
        ({"$ref": "other.json"}, "#/$ref", "outside"),
        ({"$ref": "#/$defs/missing"}, "#/$ref", "names nothing"),
        ({"allOf": [{"$ref": "#"}, {"minimum": 3}]}, "#/allOf/0/$ref", "refers to itself"),
        ({"type": "text"}, "#/type", "'type'"),
        ({"minLength": -1}, "#/minLength", "'minLength'"),
        ({"maximum": "3"}, "#/maximum", "'maximum'"),
        ({"exclusiveMinimum": True}, "#/exclusiveMinimum", "'exclusiveMinimum'"),
        ({"required": "a"}, "#/required", "'required'"),
        ({"properties": [1]}, "#/properties", "'properties'"),
        ({"anyOf": []}, "#/anyOf", "'anyOf'"),
        ([], "#", "not a schema"),
        ({"maximum": 1e308}, "#/maximum", "more than 40 digits"),
        ({"properties": {"a": {"$id": "b"}}}, "#/properties/a/$id", "'$id'"),
    ],
)
def test_nothing_is_passed_over(single_bytes: Tokenizer, schema: Any, pointer: str, problem: str) -> None:
    with pytest.raises(StructureError) as caught:
        compile_schema(schema, single_bytes)
    assert problem in caught.value.problem and caught.value.place == pointer


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "number", "exclusiveMinimum": 1, "maximum": 1},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"$ref": "#"},
        {"type": "array", "items": False, "minItems": 1},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "integer", "enum": ["a"]},
        {"not": {}},
        {"type": "string", "pattern": "^abc$", "maxLength": 2},
        {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6},
        {"enum": [1, "a"], "not": {"enum": ["a", 1.0]}},
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3},
        {"type": "array", "items": {"type": "string"}, "contains": {"type": "null"}},
        {"type": "boolean", "if": True, "then": False},
    ],
)
def test_schemas_that_nothing_satisfies(single_bytes: Tokenizer, schema: Any) -> None:
    with pytest.raises(StructureError, match="no text satisfies it"):
        compile_schema(schema, single_bytes)


def test_schemas_nested_too_deeply(single_bytes: Tokenizer) -> None:
    schema: Any = {"type": "integer"}
    for _ in range(400):
        schema = {"type": "array", "items": schema}
    with pytest.raises(StructureError, match="nested too deeply"):
        compile_schema(schema, single_bytes)


def test_many_alternatives_are_refused(single_bytes: Tokenizer) -> None:
    two = {"anyOf": [{"minimum": 1}, {"maximum": 0}]}
    with pytest.raises(StructureError, match="combinations"):
        compile_schema({"allOf": [two] * 12}, single_bytes)


def test_long_lists_of_values_are_not_compared_each_with_each() -> None:
    compared = 0

    class Value(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, str(other))

        __hash__ = str.__hash__

    values = [Value(f"city {number}") for number in range(2000)]
    assert without(values + values[::-1], values[:500]) == values[500:]
    assert compared < 20 * len(values)


def test_equal_values_are_kept_once_and_in_order() -> None:
    values = [3, 1, True, 1.0, [1, {"a": 1}], "1", [True, {"a": 1}], [1.0, {"a": 1.0}], None, False, 0, {}, []]
    assert json.dumps(without(values, [3.0, False])) == json.dumps(
        [1, True, [1, {"a": 1}], "1", [True, {"a": 1}], None, 0, {}, []]
    )


def test_a_form_too_large_is_refused(single_bytes: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.inference.structure.grammar.PARTS_AT_MOST", 5000)
    rng = random.Random(0)
    values = [f"{rng.getrandbits(64):x}" for _ in range(1000)]
    optional = {"type": "object", "properties": {value: {} for value in values[:100]}, "additionalProperties": False}
    for schema in ({"enum": values}, optional, {"type": "string", "pattern": "".join(values)}):
        with pytest.raises(StructureError, match="more than 5,000 parts"):
            compile_schema(schema, single_bytes)
    assert accepts(compile_schema({"enum": values[:100]}, single_bytes), json.dumps(values[99]))
