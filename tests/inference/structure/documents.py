"""JSON schemas with values that satisfy them and values that do not."""

from __future__ import annotations

from typing import Any

NODE: dict[str, Any] = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["value", "next"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
}
EXPRESSION: dict[str, Any] = {
    "$ref": "#/$defs/expression",
    "$defs": {
        "expression": {"anyOf": [{"type": "number"}, {"$ref": "#/$defs/sum"}]},
        "sum": {
            "type": "object",
            "properties": {
                "op": {"enum": ["+", "-"]},
                "left": {"$ref": "#/$defs/expression"},
                "right": {"$ref": "#/$defs/expression"},
            },
            "required": ["op", "left", "right"],
            "additionalProperties": False,
        },
    },
}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {
    "type": "object",
    "properties": {"kind": {"const": "dog"}, "bark": {"type": "string"}},
    "required": ["kind", "bark"],
}
PERSON: dict[str, Any] = {
    "title": "Person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "full name", "minLength": 1},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "email": {"type": "string", "format": "email"},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
            "required": ["street", "zip"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "active": {"type": "boolean", "default": True},
    },
    "required": ["name", "age", "address"],
    "additionalProperties": False,
}
HOME = {"street": "x", "zip": "12345"}

Case = tuple[Any, list[Any], list[Any]]
CASES: dict[str, Case] = {
    "anything": (True, [None, 1, -2.5, "é", [], {}, [[1, {"a": [None]}]], {"a": {"b": "c"}}], []),
    "empty": ({}, [{"a": 1}, [True, False]], []),
    "string": ({"type": "string"}, ["", "a", 'q"\\/\b\f\n\r\t', "日本😀", "\u2028"], [1, None, ["a"]]),
    "lengths": (
        {"type": "string", "minLength": 2, "maxLength": 4},
        ["ab", '""', "日本😀é", "\n\n"],
        ["", "a", "abcde", 12],
    ),
    "long": ({"type": "string", "minLength": 150, "maxLength": 300}, ["a" * 150, "é" * 300], ["a" * 149, "a" * 301]),
    "exactly": ({"type": "string", "minLength": 3, "maxLength": 3}, ["abc", "日本語"], ["ab", "abcd"]),
    "no string": ({"type": "string", "maxLength": 0}, [""], ["a"]),
    "pattern": ({"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, ["AB-1", "ZZ-000"], ["AB-", "ab-1", "AB-1x"]),
    "search": ({"type": "string", "pattern": "b+"}, ["b", "abba", '"b"', "\nb"], ["", "aaa", "B"]),
    "search left": ({"type": "string", "pattern": "^x"}, ["x", 'x"'], ["ax", ""]),
    "search right": ({"type": "string", "pattern": "x$|y$"}, ["x", "ay", "\\x"], ["xa", ""]),
    "pattern escapes": ({"type": "string", "pattern": r'^["\\\n\x01é]+$'}, ['"', "\\", '\n"é', "\x01"], ["a", ""]),
    "pattern of all": (
        {"type": "string", "pattern": r"^[^a]\S.$"},
        ["bcd", '""\\', "\x00\x01\x02"],
        ["abc", "b d", "bc\n"],
    ),
    "date": (
        {"type": "string", "format": "date"},
        ["2024-02-29", "1999-12-31"],
        ["2023-02-29", "2024-13-01", "24-1-1"],
    ),
    "time": ({"type": "string", "format": "time"}, ["23:59:59Z", "01:02:03.5+01:00"], ["24:00:00Z", "1:2:3Z"]),
    "date-time": ({"type": "string", "format": "date-time"}, ["2024-02-29T12:00:00Z"], ["2024-02-30T12:00:00Z", "x"]),
    "duration": ({"type": "string", "format": "duration"}, ["P1Y2M3DT4H5M6S", "PT1M", "P2W"], ["P", "PT", "P1H", "1D"]),
    "uuid": ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    "email": ({"type": "string", "format": "email"}, ["a.b+c@d.org"], ["ab", ""]),
    "hostname": ({"type": "string", "format": "hostname"}, ["a-b.example.org", "x"], ["-a.org", "a..b", ""]),
    "ipv4": ({"type": "string", "format": "ipv4"}, ["0.0.0.0", "255.1.20.9"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
    "ipv6": (
        {"type": "string", "format": "ipv6"},
        ["::", "::1", "fe80::1:2", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::"],
        ["1:2", ":::", "1::2::3"],
    ),
    "uri": ({"type": "string", "format": "uri"}, ["https://a.org/b?c=d#e", "http://x"], ["a b", "<"]),
    "integer": ({"type": "integer"}, [0, -1, 10**20], [1.5, "1", True, None]),
    "range": (
        {"type": "integer", "minimum": -12, "maximum": 105},
        [-12, -1, 0, 9, 10, 99, 100, 105],
        [-13, -20, 106, 110, 1000],
    ),
    "above": ({"type": "integer", "exclusiveMinimum": 99.5}, [100, 101, 12345], [99, -100, 0]),
    "below": ({"type": "integer", "exclusiveMaximum": -3}, [-4, -10, -99], [-3, 3, 0]),
    "number": ({"type": "number"}, [0, 1.5, -2e10, 1e-05, 3], ["1", True]),
    "share": ({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.999, 1.0], [1.001, -0.1, 2]),
    "between": (
        {"type": "number", "exclusiveMinimum": -2.5, "maximum": 10.25},
        [-2.49, 0, 10.25, 9.99],
        [-2.5, 10.26, 11, -3],
    ),
    "temperature": ({"type": "number", "minimum": -273.15}, [-273.15, 1000.5, 0], [-273.16, -274, -1000]),
    "boolean": ({"type": "boolean"}, [True, False], [0, "true"]),
    "null": ({"type": "null"}, [None], [0, "null"]),
    "nullable": ({"type": ["string", "null"]}, ["a", None], [1, True]),
    "several types": ({"type": ["integer", "boolean", "array"], "minimum": 5}, [5, True, [1, "a"]], [4, "a", None]),
    "enum": (
        {"enum": ["red", "green", 'with "quotes"', "back\\slash", "日本", 3, 1.5, None, True]},
        ["red", 'with "quotes"', "back\\slash", "日本", 3, 1.5, None, True],
        ["re", "blue", False],
    ),
    "enum nested": ({"enum": [{"a": [1, 2]}, [], [{}], "a"]}, [{"a": [1, 2]}, [], [{}], "a"], [{"a": [1]}, {}, [[]]]),
    "enum prefixes": ({"enum": ["a", "ab", "abc", "", 1, 12, 123]}, ["a", "ab", "abc", "", 1, 12], ["abcd", 1234, 2]),
    "enum typed": ({"type": "string", "enum": ["a", 1, None]}, ["a"], [1, None]),
    "const": ({"const": {"x": "y", "z": [1, None]}}, [{"x": "y", "z": [1, None]}], [{"x": "y"}, 1]),
    "array": ({"type": "array", "items": {"type": "integer"}}, [[], [1], [1, 2, 3]], [["a"], [1.5], {}]),
    "array counts": (
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3},
        [[True, False], [True] * 3],
        [[], [True], [True] * 4],
    ),
    "tuple": (
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        [[], ["a"], ["a", 1]],
        [[1], ["a", 1, 2]],
    ),
    "tuple and more": (
        {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}, "minItems": 2, "maxItems": 4},
        [["a", None], ["a", None, None, None]],
        [["a"], ["a", 1], ["a"] + [None] * 4],
    ),
    "pair": (
        {"type": "array", "prefixItems": [{"type": "number"}] * 2, "minItems": 2, "maxItems": 2},
        [[1, 2.5]],
        [[1], [1, 2, 3]],
    ),
    "empty array": ({"type": "array", "maxItems": 0}, [[]], [[1]]),
    "matrix": (
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1}},
        [[], [[1], [2, 3]]],
        [[[]], [1]],
    ),
    "object": ({"type": "object"}, [{}, {"a": 1}, {"é": {"b": []}}], [[], 1]),
    "person": (
        PERSON,
        [
            {"name": "Ada", "age": 36, "address": HOME},
            {"name": "B", "age": 0, "email": "a@b.c", "address": HOME, "tags": ["x"], "active": False},
        ],
        [{"name": "", "age": 1, "address": HOME}, {"name": "A", "age": 151, "address": HOME}, {"name": "A", "age": 1}],
    ),
    "all optional": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}},
            "additionalProperties": False,
        },
        [{}, {"a": 1}, {"b": 1}, {"c": 1}, {"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}],
        [{"d": 1}, {"a": "x"}],
    ),
    "middle required": (
        {"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["b"]},
        [{"b": 2}, {"a": 1, "b": 2}, {"b": 2, "c": 3}],
        [{}, {"a": 1}, {"a": 1, "c": 3}],
    ),
    "map": (
        {"type": "object", "additionalProperties": {"type": "integer"}},
        [{}, {"a": 1, "b": 2}, {'"': 3}],
        [{"a": "b"}],
    ),
    "map at least one": (
        {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 2},
        [{"a": 1}, {"a": 1, "b": 2}],
        [{}, {"a": 1, "b": 2, "c": 3}],
    ),
    "open": (
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "idea": {"type": "null"}},
            "required": ["id"],
            "additionalProperties": {"type": "string"},
        },
        [{"id": 1}, {"id": 1, "i": "x", "ide": "", "ideas": "y", "": "z"}, {"id": 1, "idea": None, 'q"': "z"}],
        [{"id": "x"}, {"id": 1, "other": 2}, {"id": 1, "idea": "x"}],
    ),
    "required undeclared": (
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["b"]},
        [{"a": 1, "b": []}, {"b": 1}],
        [{"a": 1}, {}],
    ),
    "pattern properties": (
        {"type": "object", "patternProperties": {"^x_[a-z]+$": {"type": "integer"}}, "additionalProperties": False},
        [{}, {"x_a": 1, "x_bc": 2}],
        [{"y": 1}, {"x_a": "b"}],
    ),
    "odd names": (
        {
            "type": "object",
            "properties": {
                'a"b': {"type": "integer"},
                "c\\d": {"type": "integer"},
                "日/~本": {"type": "integer"},
                "": {"type": "null"},
            },
            "required": ['a"b'],
        },
        [{'a"b': 1, "c\\d": 2, "日/~本": 3, "": None}],
        [{'a"b': None}, {}],
    ),
    "forbidden": ({"type": "object", "properties": {"a": False, "b": True}}, [{}, {"b": [1]}], [{"a": 1}]),
    "any of": ({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]}, [1, "ab"], ["abc", None]),
    "any of objects": (
        {"anyOf": [CAT, DOG]},
        [{"kind": "cat", "lives": 9}, {"kind": "dog", "bark": "x"}],
        [{"kind": "dog"}, {"kind": "cow"}],
    ),
    "any of beside": (
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 2}],
        [{}],
    ),
    "one of tagged": (
        {"oneOf": [CAT, DOG], "discriminator": {"propertyName": "kind"}},
        [{"kind": "cat"}, {"kind": "dog", "bark": "!"}],
        [{"kind": "dog"}, {}],
    ),
    "all of": ({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 7}, {"minimum": 5}]}, [5, 7], [4, 8, "x"]),
    "all of objects": (
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"type": "object", "properties": {"b": {"type": "string"}, "a": {"minimum": 5}}, "required": ["b"]},
            ]
        },
        [{"a": 5, "b": "x"}],
        [{"a": 4, "b": "x"}, {"a": 5}],
    ),
    "ref beside": (
        {"$defs": {"n": {"type": "integer", "minimum": 0}}, "$ref": "#/$defs/n", "maximum": 12},
        [0, 12],
        [13, -1],
    ),
    "nested ref": (
        {
            "type": "array",
            "items": {"$ref": "#/$defs/a~1b"},
            "$defs": {"a/b": {"$ref": "#/$defs/c%20d"}, "c d": {"type": "integer"}},
        },
        [[1], []],
        [["x"]],
    ),
    "list": (
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        [{"value": 1, "next": None}, {"value": 1, "next": {"value": 2, "next": {"value": 3, "next": None}}}],
        [{"value": 1}, {"value": 1, "next": {"value": 2}}],
    ),
    "tree": (
        TREE,
        [{"name": "a"}, {"name": "a", "children": [{"name": "b", "children": []}, {"name": "c"}]}],
        [{"children": []}, {"name": "a", "children": [{}]}],
    ),
    "expression": (
        EXPRESSION,
        [1, {"op": "+", "left": 1, "right": {"op": "-", "left": 2.5, "right": 3}}],
        ["x", {"op": "*", "left": 1, "right": 1}],
    ),
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
    "no type": ({"properties": {"a": {"minLength": 2}}, "required": ["a"]}, [{"a": "xy"}], [{}, {"a": "x"}]),
}
"""Each with some values that satisfy it and some that do not."""
