"""JSON schemas whose conditions need a machine or a negation, with values that satisfy them and values that do not."""

from __future__ import annotations

from typing import Any

PET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog", "fish"]},
        "lives": {"type": "integer", "minimum": 0},
        "bark": {"type": "string", "maxLength": 5},
    },
    "required": ["kind"],
    "additionalProperties": False,
    "if": {"properties": {"kind": {"const": "cat"}}, "required": ["kind"]},
    "then": {"required": ["lives"], "properties": {"bark": False}},
    "else": {
        "if": {"properties": {"kind": {"const": "dog"}}},
        "then": {"required": ["bark"]},
        "else": {"properties": {"lives": False, "bark": False}},
    },
}
MIXED = {"type": ["integer", "string"], "maximum": 99, "maxLength": 2}

CONDITIONS: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "pattern and length": (
        {"type": "string", "pattern": "^[a-zé]+$", "minLength": 2, "maxLength": 4},
        ["ab", "éééé", "abcd"],
        ["a", "abcde", "AB", ""],
    ),
    "search and length": (
        {"type": "string", "pattern": "b+c", "minLength": 3, "maxLength": 90},
        ["abc", 'b"bc', "bc" + "😀" * 88],
        ["bc", "abx", "bc" + "x" * 89],
    ),
    "two patterns": ({"allOf": [{"pattern": "a"}, {"pattern": "^.{2}b"}]}, ["aab", "xxba"], ["xxb", "ab"]),
    "format and length": (
        {"type": "string", "format": "hostname", "maxLength": 12, "pattern": "\\.org$"},
        ["a.org", "ab.cd.org"],
        ["abcdefghij.org", "a.com"],
    ),
    "multiple": ({"type": "integer", "multipleOf": 7}, [0, 7, -21, 700], [1, 8, -20, "7"]),
    "multiple in a range": (
        {"type": "integer", "multipleOf": 12, "minimum": -25, "exclusiveMaximum": 1200},
        [-24, 0, 12, 1188],
        [-36, 1200, 13],
    ),
    "multiples together": ({"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer"}, [12, -24], [4, 6, 8]),
    "halves": ({"type": "number", "multipleOf": 0.5}, [0.5, 1, -2.5, 1.0], [0.25, 1.1]),
    "no such value": (
        {"not": {"enum": ["a", "", 1, 2.5, None, True]}},
        ["b", "aa", 2, 2.25, False, [1], {"a": 1}, [], 11, -1, 100],
        ["a", "", 1, 1.0, 2.5, None, True],
    ),
    "no such string": ({"type": "string", "not": {"const": "ab"}, "maxLength": 3}, ["a", "abc", ""], ["ab", "abcd"]),
    "not zero": ({"type": "number", "not": {"const": 0}}, [1, 0.5, -0.1, 10], [0, -0.0, 0.0]),
    "no such type": ({"not": {"type": ["string", "object"]}}, [1, None, [{"a": "b"}], True, 1.5], ["a", {}]),
    "not a range": (
        {"type": "integer", "not": {"minimum": 3, "maximum": 7}},
        [2, 8, -5],
        [3, 5, 7],
    ),
    "not any of": (
        {
            "type": ["string", "integer"],
            "not": {"anyOf": [{"type": "number", "minimum": 3}, {"type": "string", "minLength": 2}]},
        },
        [2, "a", -4, ""],
        [3, "ab"],
    ),
    "not required": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "not": {"required": ["a", "b"]},
        },
        [{"a": 1}, {"b": 1}, {}],
        [{"a": 1, "b": 2}],
    ),
    "if, then, else": (
        PET,
        [
            {"kind": "cat", "lives": 9},
            {"kind": "dog", "bark": "wau"},
            {"kind": "dog", "lives": 1, "bark": ""},
            {"kind": "fish"},
        ],
        [{"kind": "cat"}, {"kind": "cat", "lives": 1, "bark": "x"}, {"kind": "dog"}, {"kind": "fish", "lives": 1}],
    ),
    "unique": (
        {"type": "array", "items": {"enum": ["a", "b", "c", 1]}, "uniqueItems": True, "minItems": 1, "maxItems": 3},
        [["a"], ["c", 1, "a"], [1, "b"]],
        [[], ["a", "a"], ["a", "b", "c", 1], ["b", 1, "b"]],
    ),
    "unique by reference": (
        {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/x"}, {"type": ["boolean", "null"]}]},
            "uniqueItems": True,
            "$defs": {"x": {"enum": [[1], {"a": 2}, 1.0, True]}},
        },
        [[], [[1], {"a": 2}, 1.0, True, False, None], [None, True]],
        [[True, True], [None, 1.0, None], [[1], [1]]],
    ),
    "values beside bounds": (
        {
            "enum": [1, 4.5, "a", "abc", [], [1, 2], None, 6],
            "minimum": 3,
            "multipleOf": 1.5,
            "maxLength": 2,
            "minItems": 1,
        },
        [4.5, "a", [1, 2], None, 6],
        [1, "abc", []],
    ),
    "contains": (
        {"type": "array", "items": MIXED, "contains": {"type": "integer"}},
        [[1], ["a", 1], [1, "b", 2]],
        [[], ["a"], ["a", "b"]],
    ),
    "contains some": (
        {
            "type": "array",
            "items": MIXED,
            "contains": {"minimum": 10, "type": "number"},
            "minContains": 2,
            "maxContains": 3,
            "maxItems": 4,
        },
        [[10, 11], [1, 10, "a", 10], [10, 11, 12]],
        [[10], [10, 11, 12, 13], [1, 2], [10, 11, 1, 1, 1]],
    ),
    "contains at most": (
        {"type": "array", "items": MIXED, "contains": {"const": 1}, "minContains": 0, "maxContains": 1, "minItems": 1},
        [[1], [2], ["a", 1, 11]],
        [[], [1, 1], [1, 2, 1]],
    ),
    "contains after a prefix": (
        {
            "type": "array",
            "prefixItems": [{"type": "null"}, MIXED],
            "items": MIXED,
            "contains": {"const": "x"},
            "maxItems": 4,
        },
        [[None, "x"], [None, 1, "x"], [None, "x", "x"]],
        [[None], ["x"], [None, 1], [None, "y", 2]],
    ),
}
