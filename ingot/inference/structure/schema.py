"""JSON Schema (2020-12) read into a grammar of JSON texts.

Understood exactly:

    type (also a list), enum, const, true and false as schemas, $ref and $defs within the document, recursion too
    object    properties, required, additionalProperties, one of patternProperties, min/maxProperties where they only
              concern additional properties
    array     items, prefixItems, minItems, maxItems; contains with minContains and maxContains; uniqueItems where the items
              are of some given values (arrays.py)
    string    minLength, maxLength, pattern (pattern.py), format (formats.py), also together (words.py)
    integer, number   minimum, maximum, exclusiveMinimum, exclusiveMaximum (numbers.py says how numbers are written), multipleOf
    anyOf; allOf and $ref beside other keywords, where they can be joined (conjunction.py); oneOf, where its schemas are
    provably disjoint: by type, by value, by range, or by a required property such as a tag; not, if, then and else, where
    what is negated can be (alternatives.py)

Every other keyword that asserts something is an error that names its JSON pointer; annotations are passed over.

What is written is always valid. Of all valid documents these are left out: properties come in the order in which they are
declared, additional ones after them; an object that declares properties and says nothing of additional ones has none, and
an array that declares prefixItems and says nothing of items has no more; a schema without a type, but with keywords of
some type, means that type. White space is that of values.py.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ingot.inference.structure.alternatives import WIDE_TYPES, Alternatives
from ingot.inference.structure.arrays import containing, unique
from ingot.inference.structure.characters import Alphabet
from ingot.inference.structure.conjunction import EXCLUDED, Schema, has_type, listed, satisfies, types_of, without
from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.formats import FORMATS
from ingot.inference.structure.grammar import Node
from ingot.inference.structure.keywords import KEYWORDS_OF, NUMBERS, check_keywords
from ingot.inference.structure.numbers import Bound, equal_to, integer, number
from ingot.inference.structure.values import Others, Property, Values
from ingot.inference.structure.words import Condition, Length, Matching, Multiple

LONGEST_BOUND = 40  # characters of a bound in decimal notation


def schema_node(schema: Any, alphabet: Alphabet) -> Node:
    """The expression of all texts of the values that `schema` allows."""
    return _Reader(schema, alphabet).value(schema, "#")


class _Reader:
    """Reads a schema document. Equal schemas are read once; one met within itself becomes a rule."""

    def __init__(self, document: Any, alphabet: Alphabet) -> None:
        self.grammar, self.values, self.alternatives = alphabet.grammar, Values(alphabet), Alternatives(document)
        self._known: dict[str, Node | None] = {}  # None: being read
        self._writers: dict[str, Callable[[Schema, str], Node]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._integer,
            "number": self._number,
            "boolean": lambda schema, place: self.values.constants(without([True, False], schema.get(EXCLUDED, []))),
            "null": lambda schema, place: self.values.constants(without([None], schema.get(EXCLUDED, []))),
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
            return self.value(*self.alternatives.resolve(schema["$ref"], place))
        if asserted == {"anyOf"}:
            options = [self.value(one, f"{place}/anyOf/{index}") for index, one in enumerate(schema["anyOf"])]
            return self.grammar.choice(options)
        return self.grammar.choice([self._flat(one, place) for one in self.alternatives.of(schema, place)])

    def _flat(self, schema: Schema, place: str) -> Node:
        """The texts of a schema without combining keywords."""
        if "enum" in schema:
            return self.values.constants(self._listed(schema, place))
        if not schema:
            return self.values.anything()
        if "type" not in schema:
            spoken_of = [name for key in schema if key != EXCLUDED for name in KEYWORDS_OF[key] if name != "integer"]
            schema = {**schema, "type": list(dict.fromkeys(spoken_of or WIDE_TYPES))}
        return self.grammar.choice([self._writers[name](schema, place) for name in types_of(schema)])

    def _listed(self, schema: Schema, place: str) -> list[Any]:
        """The values of an `enum` that satisfy all that is said beside it."""
        values = listed(schema)
        for key in sorted(schema.keys() - {"enum", "type", EXCLUDED}):
            concerned = {
                index: satisfies(value, key, schema[key])
                for index, value in enumerate(values)
                if has_type(value, KEYWORDS_OF[key])
            }
            if None in concerned.values():
                raise StructureError(
                    f"'enum' beside {key!r}", place=f"{place}/{key}", fix="list only the values that satisfy it"
                )
            values = [value for index, value in enumerate(values) if concerned.get(index, True)]
        return values

    def _excluded(self, schema: Schema, kind: str) -> list[Any]:
        """The values of a type that are not allowed."""
        return [value for value in schema.get(EXCLUDED, []) if has_type(value, (kind,))]

    def _object(self, schema: Schema, place: str) -> Node:
        if self._excluded(schema, "object"):
            raise _whole_value("object", place)
        declared: Schema = schema.get("properties", {})
        required: list[str] = schema.get("required", [])
        closed = any(one is not False for one in declared.values()) or "patternProperties" in schema
        additional = schema.get("additionalProperties", not closed)  # names that are only forbidden declare nothing
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
        items = schema.get("items", not prefix or least > len(prefix) or bool(schema.get("minContains")))
        if self._excluded(schema, "array"):
            raise _whole_value("array", place)
        if "uniqueItems" in schema and (most is None or most > 1):
            return unique(self.values, self._finite(schema, items, place), least, most, f"{place}/uniqueItems")
        if schema.get("minContains") or "maxContains" in schema:
            if "maxContains" in schema:  # what cannot be negated is refused here, under its own pointer
                self.alternatives.violating(schema["contains"], f"{place}/contains")
            chosen = (*prefix, items)
            return containing(self.values, schema, lambda n: chosen[min(n, len(prefix))], self.value, place)
        nodes = [self.value(one, f"{place}/prefixItems/{index}") for index, one in enumerate(prefix)]
        item = None if items is False else self.value(items, f"{place}/items")
        return self.values.array(nodes, item, least, most)

    def _finite(self, schema: Schema, items: Any, place: str) -> list[Any]:
        """The values that the elements of an array may have, each once, if they are finitely many."""
        found: list[Any] = []
        for one in self.alternatives.of(items, f"{place}/items"):
            if "enum" in one:
                found += self._listed(one, f"{place}/items")
            elif "type" in one and set(types_of(one)) <= {"boolean", "null"}:
                named = [value for value in (True, False, None) if has_type(value, types_of(one))]
                found += without(named, one.get(EXCLUDED, []))
            else:
                found = []
                break
        if not found or schema.keys() & {"prefixItems", "contains"}:
            raise StructureError(
                "supported only where 'items' allows some given values, without 'prefixItems' and 'contains'",
                place=f"{place}/uniqueItems",
                fix="leave it out and check the result",
            )
        return without(found, [])

    def _string(self, schema: Schema, place: str) -> Node:
        patterns = [(pattern, f"{place}/pattern", True) for pattern in schema.get("pattern", [])]
        if "format" in schema:
            if schema["format"] not in FORMATS:
                raise StructureError(
                    f"the format {schema['format']!r} is not known",
                    place=f"{place}/format",
                    fix=f"one of {', '.join(FORMATS)}, or a pattern",
                )
            patterns.append((FORMATS[schema["format"]], f"{place}/format", False))
        least, most, excluded = schema.get("minLength", 0), schema.get("maxLength"), self._excluded(schema, "string")
        bounded = least > 0 or most is not None
        if not patterns and not excluded:
            return self.values.string(least, most)
        if not patterns and not bounded:
            return self.values.string_but(excluded)
        if len(patterns) == 1 and not bounded and not excluded:
            [(pattern, pointer, search)] = patterns
            return self.values.matching(pattern, pointer, search=search)
        conditions: list[Condition] = [Matching(pattern, where, search=search) for pattern, where, search in patterns]
        conditions += [Length(least, most)] if bounded else []
        conditions += [Matching("|".join(map(re.escape, excluded)), place, holds=False)] if excluded else []
        return self.values.string_of(conditions, place)

    def _integer(self, schema: Schema, place: str) -> Node:
        lows, highs = self._bounds(schema, place)
        low = max(
            (math.floor(bound.value) + 1 if bound.strict else math.ceil(bound.value) for bound in lows), default=None
        )
        high = min(
            (math.ceil(bound.value) - 1 if bound.strict else math.floor(bound.value) for bound in highs), default=None
        )
        return self._written(integer(low, high), schema, self._excluded(schema, "integer"), place)

    def _number(self, schema: Schema, place: str) -> Node:
        lows, highs = self._bounds(schema, place)
        excluded = self._excluded(schema, "number")
        beside = [Bound(Decimal(str(value)), strict=True) for value in excluded]
        if not all(bound.sharp for bound in lows + highs + beside):
            raise StructureError(
                "an exclusive bound of more than 15 digits", place=place, fix="round it, or include it"
            )
        low = max(lows, key=lambda bound: (bound.value, bound.strict), default=None)
        high = min(highs, key=lambda bound: (bound.value, not bound.strict), default=None)
        return self._written(number(low, high, beside), schema, excluded, place)

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

    def _written(self, pattern: str | None, schema: Schema, excluded: list[Any], place: str) -> Node:
        """The numbers of a pattern that are multiples, if they must be, and not excluded."""
        if pattern is None:
            return self.grammar.nothing
        conditions: list[Condition] = [Matching(pattern, place)]
        if "multipleOf" in schema:
            conditions.append(Multiple(Fraction(str(schema["multipleOf"]))))
        if excluded:
            texts = "|".join(equal_to(Decimal(str(value))) for value in excluded)
            conditions.append(Matching(texts, place, holds=False))
        if len(conditions) == 1:
            return self.values.written(pattern)
        return self.values.number_of(conditions, f"{place}/multipleOf" if "multipleOf" in schema else place)


def _uncounted(key: str, place: str) -> StructureError:
    return StructureError(f"{key!r} cannot be kept here", place=f"{place}/{key}", fix="use 'required' instead")


def _whole_value(kind: str, place: str) -> StructureError:
    return StructureError(
        f"an {kind} that is excluded as a whole", place=place, fix="exclude it by its properties, its items or its type"
    )


def _pointer(place: str, key: str, name: str) -> str:
    return f"{place}/{key}/{name.replace('~', '~0').replace('/', '~1')}"
