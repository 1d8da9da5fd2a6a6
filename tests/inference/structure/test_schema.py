"""JSON schemas: what is written satisfies `jsonschema`, what satisfies it can be written, and nothing is passed over."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ingot.inference.structure.constraint import Constraint, compile_json, compile_schema
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.formats import with_exact_formats
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.structure.documents import CASES
from tests.inference.structure.walking import accepts, cut, write

jsonschema: Any = pytest.importorskip("jsonschema", reason="needs jsonschema to compare with")
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER  # with the packages beside jsonschema in pyproject.toml
names = pytest.mark.parametrize("name", CASES)


def check(value: Any, schema: Any) -> None:
    jsonschema.Draft202012Validator(schema, format_checker=CHECKER).validate(value)


def follows(constraint: Constraint, tokens: list[int]) -> bool:
    """Whether each of these tokens is allowed in turn, and the end after them. A mask of one token is that of the only way on."""
    state = constraint.start()
    for token in tokens:
        if not state.mask()[token] and state.mask().sum() > 1:
            return False
        state = state.advance(token)
    return state.complete


@names
def test_valid_documents_are_accepted_and_invalid_ones_are_not(name: str, small: Tokenizer) -> None:
    schema, valid, invalid = CASES[name]
    for value in valid:
        check(value, schema)
    for value in invalid:
        with pytest.raises(jsonschema.ValidationError):
            check(value, schema)
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
    for text in ('"\\n\\""', '"\\\\é"', '"日😀"'):
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
    ("schema", "problem"),
    [
        ({"not": {"type": "integer"}}, 'Unimplemented keys: ["not"]'),
        ({"if": {"format": "date"}, "then": {"maxLength": 3}}, 'Unimplemented keys: ["if", "then"]'),
        ({"type": "array", "uniqueItems": True}, 'Unimplemented keys: ["uniqueItems"]'),
        ({"type": "array", "contains": {}}, 'Unimplemented keys: ["contains"]'),
        ({"properties": {"a": {"propertyNames": {"maxLength": 3}}}}, 'Unimplemented keys: ["propertyNames"]'),
        ({"dependentRequired": {}}, 'Unimplemented keys: ["dependentRequired"]'),
        ({"x-guidance": {"lenient": True}, "not": {}}, 'Unimplemented keys: ["not"]'),
        ({"type": "string", "format": "iri"}, "Unknown format: iri"),
        ({"type": "string", "pattern": "(?=a)"}, "look-around"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf constraints are not supported"),
        ({"$ref": "other.json"}, "other.json"),
        ({"$ref": "#/$defs/missing"}, "Pointer '/$defs/missing' does not exist"),
        ({"type": "text"}, "Invalid type: text"),
        ({"minLength": -1}, "'minLength'"),
        ({"exclusiveMinimum": "3"}, "'exclusiveMinimum'"),
        ({"required": "a"}, "'required'"),
        ({"properties": [1]}, "properties must be an object"),
        ([], "not a schema"),
        ({"default": float("nan")}, "not JSON"),
    ],
)
def test_nothing_is_passed_over(single_bytes: Tokenizer, schema: Any, problem: str) -> None:
    with pytest.raises(StructureError) as caught:
        compile_schema(schema, single_bytes)
    assert problem in caught.value.problem and caught.value.fix


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "number", "exclusiveMinimum": 1, "maximum": 1},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"$ref": "#"},
        {"type": "array", "items": False, "minItems": 1},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "integer", "enum": ["a"]},
        {"type": "string", "pattern": "^abc$", "maxLength": 2},
        {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6},
        {"anyOf": []},
    ],
)
def test_schemas_that_nothing_satisfies(single_bytes: Tokenizer, schema: Any) -> None:
    with pytest.raises(StructureError, match=r"no text satisfies it|Unsatisfiable schema"):
        compile_schema(schema, single_bytes)


def test_schemas_nested_too_deeply(single_bytes: Tokenizer) -> None:
    for depth, problem in ((400, "recursion limit exceeded"), (4000, "not JSON: maximum recursion depth")):
        schema: Any = {"type": "integer"}
        for _ in range(depth):
            schema = {"type": "array", "items": schema}
        with pytest.raises(StructureError, match=problem):
            compile_schema(schema, single_bytes)


def test_formats_stay_data_where_they_are_data() -> None:
    schema = {"enum": [{"format": "date"}], "properties": {"format": {"const": {"format": "time"}}}}
    assert with_exact_formats(schema) == schema
    both = with_exact_formats({"format": "date", "pattern": "^2", "allOf": [{"maxLength": 10}]})
    assert list(both) == ["pattern", "allOf"] and len(both["allOf"]) == 2


def test_a_structure_too_large_is_refused(smollm2: Tokenizer) -> None:
    """Where masks would take long: not while an answer is sampled, but when it is compiled."""
    properties = {f"property {number}": {"type": "string"} for number in range(3000)}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    with pytest.raises(StructureError, match="too big") as caught:
        compile_schema(schema, smollm2)
    assert "fewer properties" in str(caught.value)
    compile_schema(schema | {"required": list(properties)}, smollm2)
    few = dict(list(properties.items())[:500])
    compile_schema(schema | {"properties": few}, smollm2)
