"""Schemas without combining keywords, one of which a value satisfies just when it satisfies a given schema.

This is the disjunctive normal form: `allOf`, `$ref` and the keywords beside them are joined (conjunction.py), `anyOf` and `oneOf`
are lists of alternatives, and

    if a then b else c   =   (a and b)  or  (not a and c)

`not` is carried down to the keywords by De Morgan's rules. Each keyword speaks of values of its own types only, so what violates
it is of such a type: what is not at least 3 is a number below 3. These can be negated exactly: type, enum and const, bounds of
numbers, lengths and counts, required, properties, and all combinations of these but oneOf and if. The rest is refused, with its
pointer.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from ingot.inference.structure.conjunction import EXCLUDED, Schema, disjoint, join, listed, normal, types_of
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.keywords import COMBINING, KEYWORDS_OF, check_keywords

WIDEST = 1000  # alternatives of one schema
DEEPEST = (
    20_000  # schemas that are looked at for a document: what refers twice to what refers twice … grows without end
)
WIDE_TYPES = ("object", "array", "string", "number", "boolean", "null")  # every value is of one of these
OPPOSITES = {  # of bounds: the keyword of what violates it, and what is added to the bound
    "minimum": ("exclusiveMaximum", 0),
    "maximum": ("exclusiveMinimum", 0),
    "exclusiveMinimum": ("maximum", 0),
    "exclusiveMaximum": ("minimum", 0),
    "minLength": ("maxLength", -1),
    "maxLength": ("minLength", 1),
    "minItems": ("maxItems", -1),
    "maxItems": ("minItems", 1),
}


class Alternatives:
    """Of the schemas within a document."""

    def __init__(self, document: Any) -> None:
        self.document = document
        self._looked = 0

    def of(self, schema: Any, place: str, within: tuple[str, ...] = ()) -> list[Schema]:
        """The alternatives of a schema. `within` are the references on the way to it."""
        if isinstance(schema, bool):
            return [{}] if schema else []
        self._look(schema, place)
        found = [normal({key: schema[key] for key in schema if key in KEYWORDS_OF and key not in COMBINING})]
        if "$ref" in schema:
            target, pointer = self._follow(schema["$ref"], place, within)
            found = self._product(found, self.of(target, pointer, (*within, pointer)), place)
        for index, one in enumerate(schema.get("allOf", [])):
            found = self._product(found, self.of(one, f"{place}/allOf/{index}", within), place)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                options = [
                    self._product(found, self.of(one, f"{place}/{key}/{index}", within), place)
                    for index, one in enumerate(schema[key])
                ]
                if key == "oneOf":
                    _check_disjoint(options, f"{place}/oneOf")
                found = [one for option in options for one in option]
        if "not" in schema:
            found = self._product(found, self.violating(schema["not"], f"{place}/not", within), place)
        if "if" in schema:
            found = self._product(found, self._conditional(schema, place, within), place)
        return [one for one in found if not self._is_impossible(one, place)]

    def violating(self, schema: Any, place: str, within: tuple[str, ...] = ()) -> list[Schema]:
        """The alternatives of not satisfying a schema: of violating one of its keywords."""
        if isinstance(schema, bool):
            return [] if schema else [{}]
        self._look(schema, place)
        found: list[Schema] = []
        for key in (key for key in schema if key in KEYWORDS_OF and key not in ("then", "else")):
            pointer, value = f"{place}/{key}", schema[key]
            if key == "not":
                found += self.of(value, pointer, within)
            elif key == "$ref":
                target, name = self._follow(value, place, within)
                found += self.violating(target, name, (*within, name))
            elif key == "allOf":
                found += [v for i, one in enumerate(value) for v in self.violating(one, f"{pointer}/{i}", within)]
            elif key == "anyOf":
                every: list[Schema] = [{}]
                for index, one in enumerate(value):
                    every = self._product(every, self.violating(one, f"{pointer}/{index}", within), place)
                found += every
            else:
                found += _violating(key, value, pointer)
            _check_width(len(found), place)
        return found

    def _look(self, schema: Schema, place: str) -> None:
        check_keywords(schema, place)
        self._looked += 1
        if self._looked > DEEPEST:
            raise StructureError(f"more than {DEEPEST} schemas within it", place=place, fix="refer less often")

    def _conditional(self, schema: Schema, place: str, within: tuple[str, ...]) -> list[Schema]:
        sides = []
        for key, side in (("then", self.of), ("else", self.violating)):
            condition = side(schema["if"], f"{place}/if", within)
            sides += self._product(condition, self.of(schema.get(key, True), f"{place}/{key}", within), place)
        return sides

    def _product(self, left: list[Schema], right: list[Schema], place: str) -> list[Schema]:
        _check_width(len(left) * len(right), place)
        joined = [join(one, other, place) for one in left for other in right]
        return [one for one in joined if not self._is_impossible(one, place)]

    def _is_impossible(self, flat: Schema, place: str) -> bool:
        """Whether it is plain that nothing satisfies a flat schema: ten tags, each with its `if`, are not 2^10 alternatives."""
        if not types_of(flat) or ("enum" in flat and not listed(flat)):
            return True
        if types_of(flat) != ("object",):
            return False
        named = [flat.get("properties", {}).get(name, True) for name in flat.get("required", [])]
        return any(one is False or (_is_plain(one) and not self.of(one, place)) for one in named)

    def _follow(self, reference: str, place: str, within: tuple[str, ...]) -> tuple[Any, str]:
        target, pointer = self.resolve(reference, place)
        if pointer in within:
            raise StructureError("refers to itself", place=f"{place}/$ref", fix="break the circle")
        return target, pointer

    def resolve(self, reference: str, place: str) -> tuple[Any, str]:
        """What a reference within the document names, and its pointer."""
        target = self.document
        if reference != "#" and not reference.startswith("#/"):
            raise StructureError(
                f"{reference!r} is outside of the schema", place=f"{place}/$ref", fix="copy it to $defs"
            )
        for part in reference.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
                target = target[int(name)]
            else:
                raise StructureError(f"{reference!r} names nothing", place=f"{place}/$ref", fix="define it in $defs")
        return target, reference


def _check_width(count: int, place: str) -> None:
    if count > WIDEST:
        raise StructureError(f"more than {WIDEST} combinations of alternatives", place=place, fix="simplify it")


def _is_plain(schema: Any) -> bool:
    """Whether a schema speaks of nothing but types and given values."""
    if isinstance(schema, bool):
        return True
    inner = [*schema.get("allOf", []), schema.get("not", True)]
    return schema.keys() & KEYWORDS_OF.keys() <= {"type", "enum", "const", "allOf", "not"} and all(
        map(_is_plain, inner)
    )


def _violating(key: str, value: Any, pointer: str) -> list[Schema]:
    """The alternatives of violating one keyword that combines nothing."""
    if key == "type":
        names = types_of({"type": value})
        if "integer" in names and "number" not in names:
            raise _not_negated(key, pointer, "name the types that are allowed")
        return [{"type": list(rest)}] if (rest := [name for name in WIDE_TYPES if name not in names]) else []
    if key in ("enum", "const"):
        return [{EXCLUDED: value if key == "enum" else [value]}]
    if key in OPPOSITES:
        opposite, more = OPPOSITES[key]
        kind = "string" if key.endswith("Length") else "array" if key.endswith("Items") else "number"
        return [{"type": [kind], opposite: value + more}] if value + more >= 0 or kind == "number" else []
    if key == "required":
        return [{"type": ["object"], "properties": {name: False}} for name in value]
    if key == "properties":
        return [
            {"type": ["object"], "properties": {name: {"not": one}}, "required": [name]} for name, one in value.items()
        ]
    raise _not_negated(key, pointer, "say what is allowed instead")


def _not_negated(key: str, pointer: str, fix: str) -> StructureError:
    return StructureError(f"{key!r} cannot be negated", place=pointer, fix=fix)


def _check_disjoint(options: list[list[Schema]], place: str) -> None:
    for index, option in enumerate(options):
        for other in options[:index]:
            if not all(disjoint(one, another) for one in option for another in other):
                raise StructureError(
                    "two of its schemas may hold at once, or it cannot be told",
                    place=place,
                    fix="use 'anyOf', or tell the schemas apart by type or by a required property with a 'const'",
                )
