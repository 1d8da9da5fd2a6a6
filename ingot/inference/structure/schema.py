"""JSON Schema (2020-12) read into a grammar of JSON texts.

Understood exactly:

    type (also a list), enum, const, true and false as schemas, $ref and $defs within the document, recursion too
    object    properties, required, additionalProperties, one of patternProperties, min/maxProperties where they only
              concern additional properties
    array     items, prefixItems, minItems, maxItems
    string    minLength, maxLength, or pattern (pattern.py), or format (formats.py)
    integer, number   minimum, maximum, exclusiveMinimum, exclusiveMaximum (numbers.py says how numbers are written)
    anyOf; allOf and $ref beside other keywords, where they can be joined (conjunction.py); oneOf, where its schemas are
    provably disjoint: by type, by value, by range, or by a required property such as a tag

Every other keyword that asserts something is an error that names its JSON pointer; annotations are passed over.

What is written is always valid. Of all valid documents these are left out: properties come in the order in which they are
declared, additional ones after them; an object that declares properties and says nothing of additional ones has none, and
an array that declares prefixItems and says nothing of items has no more; a schema without a type, but with keywords of
some type, means that type. White space is that of values.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from ingot.inference.structure.characters import Alphabet
from ingot.inference.structure.conjunction import Schema, as_enum, disjoint, has_type, join, types_of
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.formats import FORMATS
from ingot.inference.structure.grammar import Node
from ingot.inference.structure.keywords import COMBINING, KEYWORDS_OF, NUMBERS, check_keywords
from ingot.inference.structure.numbers import Bound, integer, number
from ingot.inference.structure.values import Others, Property, Values

WIDEST = 1000  # alternatives of one schema, after anyOf and oneOf are multiplied out
LONGEST_BOUND = 40  # characters of a bound in decimal notation


def schema_node(schema: Any, alphabet: Alphabet) -> Node:
    """The expression of all texts of the values that `schema` allows."""
    return _Reader(schema, alphabet).value(schema, "#")


class _Reader:
    """Reads a schema document. Equal schemas are read once; one met within itself becomes a rule."""

    def __init__(self, document: Any, alphabet: Alphabet) -> None:
        self.document, self.grammar, self.values = document, alphabet.grammar, Values(alphabet)
        self._known: dict[str, Node | None] = {}  # None: being read
        self._writers: dict[str, Callable[[Schema, str], Node]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda schema, place: self.values.boolean(),
            "null": lambda schema, place: self.values.null(),
        }

    def value(self, schema: Any, place: str) -> Node:
        """The texts of one schema."""
        if isinstance(schema, bool):
            return self.values.anything() if schema else self.grammar.nothing
        check_keywords(schema, place)
        key = json.dumps(schema)
        if key in self._known:
            return self._known[key] or self.grammar.rule(key)
        self._known[key] = None
        self._known[key] = self.grammar.rule(key).body = node = self._read(schema, place)
        return node

    def _read(self, schema: Schema, place: str) -> Node:
        asserted = schema.keys() & KEYWORDS_OF.keys()
        if asserted == {"$ref"}:  # kept whole, so that what it names is read only once and may be recursive
            return self.value(*self._resolve(schema["$ref"], place))
        if asserted == {"anyOf"}:
            options = [self.value(one, f"{place}/anyOf/{index}") for index, one in enumerate(schema["anyOf"])]
            return self.grammar.choice(options)
        return self.grammar.choice([self._flat(one, place) for one in self._alternatives(schema, place, ())])

    def _alternatives(self, schema: Any, place: str, within: tuple[str, ...]) -> list[Schema]:
        """Flat schemas, one of which a value satisfies just when it satisfies `schema`: the disjunctive normal form."""
        if isinstance(schema, bool):
            return [{}] if schema else []
        check_keywords(schema, place)
        found = [as_enum({key: schema[key] for key in schema if key in KEYWORDS_OF and key not in COMBINING})]
        if "$ref" in schema:
            target, pointer = self._resolve(schema["$ref"], place)
            if pointer in within:
                raise StructureError("refers to itself", place=f"{place}/$ref", fix="break the circle")
            found = self._product(found, self._alternatives(target, pointer, (*within, pointer)), place)
        for index, one in enumerate(schema.get("allOf", [])):
            found = self._product(found, self._alternatives(one, f"{place}/allOf/{index}", within), place)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                options = [
                    self._product(found, self._alternatives(one, f"{place}/{key}/{index}", within), place)
                    for index, one in enumerate(schema[key])
                ]
                if key == "oneOf":
                    _check_disjoint(options, f"{place}/oneOf")
                found = [one for option in options for one in option]
        return found

    def _product(self, left: list[Schema], right: list[Schema], place: str) -> list[Schema]:
        if len(left) * len(right) > WIDEST:
            raise StructureError(f"more than {WIDEST} combinations of alternatives", place=place, fix="simplify it")
        return [join(one, other, place) for one in left for other in right]

    def _resolve(self, reference: str, place: str) -> tuple[Any, str]:
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

    def _flat(self, schema: Schema, place: str) -> Node:
        """The texts of a schema without combining keywords."""
        if "enum" in schema:
            beside = schema.keys() - {"enum", "type"}
            names = types_of(schema)
            values = [value for value in schema["enum"] if has_type(value, names)]
            if any(has_type(value, KEYWORDS_OF[key]) for key in beside for value in values):
                raise StructureError(
                    f"'enum' beside {sorted(beside)}", place=place, fix="list only the values that satisfy them"
                )
            return self.values.constants(values)
        if not schema:
            return self.values.anything()
        if "type" not in schema:
            spoken_of = [name for key in schema for name in KEYWORDS_OF[key] if name != "integer"]
            schema = {**schema, "type": list(dict.fromkeys(spoken_of))}
        return self.grammar.choice([self._writers[name](schema, place) for name in types_of(schema)])

    def _object(self, schema: Schema, place: str) -> Node:
        declared: Schema = schema.get("properties", {})
        required: list[str] = schema.get("required", [])
        additional = schema.get("additionalProperties", not declared and "patternProperties" not in schema)
        extra = schema.get("additionalProperties", True)  # required, but not declared
        declared = declared | {name: extra for name in required if name not in declared}
        if "patternProperties" in schema:
            return self._pattern_object(schema, declared, additional, place)
        properties = [
            Property(name, self.value(one, _pointer(place, "properties", name)), name in required)
            for name, one in declared.items()
        ]
        least, most = self._counts(schema, len(required), len(properties), additional is not False, place)
        others = None
        if additional is not False and most != 0:
            node = self.value(additional, f"{place}/additionalProperties")
            others = Others(self.values.string_but(list(declared)), node, least, most)
        return self.values.object(properties, others)

    def _counts(self, schema: Schema, required: int, declared: int, open: bool, place: str) -> tuple[int, int | None]:
        """How many additional properties there are at least and at most.

        A name may come twice, which counts once, so that only a least of one can be kept. Optional properties are not
        counted: beside them neither bound can be.
        """
        least, most = schema.get("minProperties", 0), schema.get("maxProperties")
        wanted, allowed = max(0, least - required), None if most is None else most - declared
        counted = open and required == declared
        if wanted and not (counted and wanted == 1):
            raise _uncounted("minProperties", place)
        if allowed is not None and (allowed < 0 or (open and not counted)):
            raise _uncounted("maxProperties", place)
        return wanted, allowed

    def _pattern_object(self, schema: Schema, declared: Schema, additional: Any, place: str) -> Node:
        patterns = schema["patternProperties"]
        if declared or additional is not False or len(patterns) != 1:
            raise StructureError(
                "supported only alone: one pattern, no 'properties', 'additionalProperties' false",
                place=f"{place}/patternProperties",
                fix="name the properties",
            )
        ((pattern, one),) = patterns.items()
        pointer = _pointer(place, "patternProperties", pattern)
        least, most = self._counts(schema, 0, 0, True, place)
        if most == 0:
            return self.values.object([], None)
        name = self.values.matching(pattern, pointer, search=True)
        return self.values.object([], Others(name, self.value(one, pointer), least, most))

    def _array(self, schema: Schema, place: str) -> Node:
        prefix = schema.get("prefixItems", [])
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        items = schema.get("items", not prefix or least > len(prefix))
        nodes = [self.value(one, f"{place}/prefixItems/{index}") for index, one in enumerate(prefix)]
        item = None if items is False else self.value(items, f"{place}/items")
        return self.values.array(nodes, item, least, most)

    def _string(self, schema: Schema, place: str) -> Node:
        given = [key for key in ("pattern", "format") if key in schema]
        bounded = [key for key in ("minLength", "maxLength") if key in schema]
        if len(given) > 1 or (given and bounded):
            key = (given + bounded)[1]
            raise StructureError(
                f"{key!r} beside {given[0]!r}", place=f"{place}/{key}", fix="say it in the pattern alone, as with {2,8}"
            )
        if "pattern" in schema:
            return self.values.matching(schema["pattern"], f"{place}/pattern", search=True)
        if "format" in schema:
            if schema["format"] not in FORMATS:
                raise StructureError(
                    f"the format {schema['format']!r} is not known",
                    place=f"{place}/format",
                    fix=f"one of {', '.join(FORMATS)}, or a pattern",
                )
            return self.values.matching(FORMATS[schema["format"]], f"{place}/format", search=False)
        return self.values.string(schema.get("minLength", 0), schema.get("maxLength"))

    def _integer(self, schema: Schema, place: str) -> Node:
        lows, highs = self._bounds(schema, place)
        low = max(
            (math.floor(bound.value) + 1 if bound.strict else math.ceil(bound.value) for bound in lows), default=None
        )
        high = min(
            (math.ceil(bound.value) - 1 if bound.strict else math.floor(bound.value) for bound in highs), default=None
        )
        return self._written(integer(low, high))

    def _number(self, schema: Schema, place: str) -> Node:
        lows, highs = self._bounds(schema, place)
        if not all(bound.sharp for bound in lows + highs):
            raise StructureError(
                "an exclusive bound of more than 15 digits", place=place, fix="round it, or include it"
            )
        low = max(lows, key=lambda bound: (bound.value, bound.strict), default=None)
        high = min(highs, key=lambda bound: (bound.value, not bound.strict), default=None)
        return self._written(number(low, high))

    def _bounds(self, schema: Schema, place: str) -> tuple[list[Bound], list[Bound]]:
        """The lower and the upper bounds."""
        for key in schema.keys() & set(NUMBERS):
            if len(f"{Decimal(str(schema[key])):f}") > LONGEST_BOUND:
                raise StructureError(
                    f"a bound of more than {LONGEST_BOUND} digits",
                    place=f"{place}/{key}",
                    fix="leave out a bound this far off",
                )
        lows = [Bound(Decimal(str(schema[key])), key != "minimum") for key in NUMBERS[:2] if key in schema]
        highs = [Bound(Decimal(str(schema[key])), key != "maximum") for key in NUMBERS[2:] if key in schema]
        return lows, highs

    def _written(self, pattern: str | None) -> Node:
        return self.grammar.nothing if pattern is None else self.values.written(pattern)


def _check_disjoint(options: list[list[Schema]], place: str) -> None:
    for index, option in enumerate(options):
        for other in options[:index]:
            if not all(disjoint(one, another) for one in option for another in other):
                raise StructureError(
                    "two of its schemas may hold at once, or it cannot be told",
                    place=place,
                    fix="use 'anyOf', or tell the schemas apart by type or by a required property with a 'const'",
                )


def _uncounted(key: str, place: str) -> StructureError:
    return StructureError(f"{key!r} cannot be kept here", place=f"{place}/{key}", fix="use 'required' instead")


def _pointer(place: str, key: str, name: str) -> str:
    return f"{place}/{key}/{name.replace('~', '~0').replace('/', '~1')}"
