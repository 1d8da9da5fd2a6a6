"""The keywords of JSON Schema that are understood, what values they take, and of which types they speak.

Every keyword of a schema is looked up here: a known one must have a value of its shape, an annotation is passed over, and
any other is an error, so that no condition is ever dropped in silence. `$id` is an annotation at the root only: further
down it would change what a $ref means.
"""

from __future__ import annotations

from typing import Any

from ingot.inference.structure.conjunction import TYPES
from ingot.inference.structure.errors import StructureError

KEYWORDS_OF: dict[str, tuple[str, ...]] = {
    "type": TYPES,
    "enum": TYPES,
    "const": TYPES,
    "$ref": TYPES,
    "allOf": TYPES,
    "anyOf": TYPES,
    "oneOf": TYPES,
    "not": TYPES,
    "if": TYPES,
    "then": TYPES,
    "else": TYPES,
    "properties": ("object",),
    "required": ("object",),
    "additionalProperties": ("object",),
    "patternProperties": ("object",),
    "minProperties": ("object",),
    "maxProperties": ("object",),
    "items": ("array",),
    "prefixItems": ("array",),
    "minItems": ("array",),
    "maxItems": ("array",),
    "uniqueItems": ("array",),
    "contains": ("array",),
    "minContains": ("array",),
    "maxContains": ("array",),
    "minLength": ("string",),
    "maxLength": ("string",),
    "pattern": ("string",),
    "format": ("string",),
    "minimum": ("number", "integer"),
    "maximum": ("number", "integer"),
    "exclusiveMinimum": ("number", "integer"),
    "exclusiveMaximum": ("number", "integer"),
    "multipleOf": ("number", "integer"),
}
"""The keywords that assert something, and the types of value that they concern."""

COMBINING = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")

ANNOTATIONS: tuple[str, ...] = (
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "deprecated",
)
ANNOTATIONS += ("example", "examples", "readOnly", "writeOnly", "contentEncoding", "contentMediaType")
ANNOTATIONS += ("discriminator", "strict")  # of OpenAPI, and of OpenAI's requests
HARMLESS = {"nullable": False}  # keywords that assert nothing at this value

LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS_OF_SCHEMAS = ("properties", "patternProperties")
SCHEMAS = ("items", "additionalProperties", "not", "if", "then", "else", "contains")
COUNTS = (
    "minProperties",
    "maxProperties",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minContains",
    "maxContains",
)
NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
TEXTS = ("$ref", "pattern", "format")


def check_keywords(schema: Any, place: str) -> None:
    """Refuse what is no schema, has a keyword that is not understood, or one with a value of the wrong shape."""
    if not isinstance(schema, dict):
        raise StructureError("not a schema", place=place, fix="a schema is an object, true or false")
    for key, value in schema.items():
        if (
            (key in ANNOTATIONS and not (key == "$id" and place != "#"))
            or key.startswith("x-")
            or (key in HARMLESS and value is HARMLESS[key])
        ):
            continue
        if key not in KEYWORDS_OF:
            raise StructureError(
                f"the keyword {key!r} is not supported", place=f"{place}/{key}", fix="leave it out and check the result"
            )
        if not _well_formed(key, value):
            raise StructureError(f"a bad value for {key!r}", place=f"{place}/{key}", fix="see the JSON Schema standard")


def _well_formed(key: str, value: Any) -> bool:
    if key in SCHEMAS:
        return isinstance(value, dict | bool)
    if key in LISTS_OF_SCHEMAS:
        return isinstance(value, list) and bool(value) and all(isinstance(one, dict | bool) for one in value)
    if key in MAPS_OF_SCHEMAS:
        return isinstance(value, dict) and all(isinstance(one, dict | bool) for one in value.values())
    if key in COUNTS:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key in NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if key == "multipleOf":
        return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    if key == "uniqueItems":
        return isinstance(value, bool)
    if key in TEXTS:
        return isinstance(value, str)
    if key == "type":
        names = [value] if isinstance(value, str) else value
        return isinstance(names, list) and bool(names) and all(name in TYPES for name in names)
    if key == "required":
        return isinstance(value, list) and all(isinstance(name, str) for name in value) and len({*value}) == len(value)
    return key == "const" or isinstance(value, list)  # enum
