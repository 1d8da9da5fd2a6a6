"""JSON schemas joined: what two of them say together, and whether they exclude each other.

`join(a, b)` is a schema that a value satisfies just when it satisfies both: the tighter bound, the common types, for each
property and item both schemas (as an `allOf`, which is joined when its turn comes). Two that cannot be joined exactly,
such as two formats, are an error. `disjoint(a, b)` proves that no value satisfies both; False means only that it found
no proof. Both work on *flat* schemas: without keywords that combine others, and in the normal form of `normal`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from fractions import Fraction
from typing import Any, cast

from ingot.inference.structure.errors import StructureError

Schema = dict[str, Any]

LARGEST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
SMALLEST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
EXCLUDED = "not enum"  # in flat schemas: values that are not allowed


def types_of(schema: Schema) -> tuple[str, ...]:
    """The types that a schema names; all if it names none."""
    named = schema.get("type", TYPES)
    return (named,) if isinstance(named, str) else tuple(named)


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    return identity(left) == identity(right)


def identity(value: Any) -> Hashable:
    """What equal JSON values have in common and others have not: lists of thousands are compared by it."""
    match value:
        case bool():
            return bool, value
        case list():
            return list, tuple(map(identity, value))
        case dict():
            return dict, frozenset((key, identity(each)) for key, each in value.items())
    return cast(Hashable, value)


def has_type(value: Any, names: tuple[str, ...]) -> bool:
    """Whether a JSON value is of one of these types."""
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, int | float):
        return "number" in names or ("integer" in names and value == int(value))
    kind = {dict: "object", list: "array", str: "string", type(None): "null"}[type(value)]
    return kind in names


def both(left: Any, right: Any) -> Any:
    """The schema of what satisfies two, each perhaps `true` or `false`."""
    if left is False or right is False:
        return False
    if left is True or same(left, right):
        return right
    return left if right is True else {"allOf": [left, right]}


def join(left: Schema, right: Schema, place: str) -> Schema:
    """One flat schema that says what two flat schemas say together."""
    joined = {**left, **right}
    for key in left.keys() & right.keys():
        a, b = left[key], right[key]
        if key in LARGEST:
            joined[key] = max(a, b)
        elif key in SMALLEST:
            joined[key] = min(a, b)
        elif key == "type":
            joined[key] = [name for name in TYPES if has_both(name, types_of(left), types_of(right))]
        elif key == "enum":
            others = set(map(identity, b))
            joined[key] = [value for value in a if identity(value) in others]
        elif key in ("required", "pattern"):
            joined[key] = list(dict.fromkeys([*a, *b]))
        elif key == EXCLUDED:
            joined[key] = a + b
        elif key == "multipleOf" and isinstance(a, int) and isinstance(b, int):
            joined[key] = math.lcm(a, b)
        elif key not in ("properties", "additionalProperties", "items", "prefixItems") and not same(a, b):
            raise StructureError(
                f"{key!r} is given twice", place=f"{place}/{key}", fix="join the two by hand into one schema"
            )
    if ("properties" in left and "properties" in right) or "additionalProperties" in joined:
        _join_properties(left, right, joined, place)
    if "prefixItems" in joined or ("items" in left and "items" in right):
        _join_items(left, right, joined)
    return joined


def has_both(name: str, left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether a type is in both lists, where `number` holds `integer`."""
    return all(name in names or (name == "integer" and "number" in names) for names in (left, right))


def _join_properties(left: Schema, right: Schema, joined: Schema, place: str) -> None:
    """Each named property satisfies what either says of it, by name or as an additional one."""
    for one, other in ((left, right), (right, left)):
        # what one calls additional, the other may name by its pattern
        if "patternProperties" in one and other.keys() & {"properties", "additionalProperties"}:
            raise StructureError(
                "'patternProperties' cannot be joined", place=f"{place}/patternProperties", fix="write one schema"
            )
    if "patternProperties" in joined:
        return
    names = dict.fromkeys([*left.get("properties", {}), *right.get("properties", {})])
    sides = [(schema.get("properties", {}), schema.get("additionalProperties", True)) for schema in (left, right)]
    if names:
        joined["properties"] = {
            name: both(*(known.get(name, additional) for known, additional in sides)) for name in names
        }
    if "additionalProperties" in joined:
        joined["additionalProperties"] = both(sides[0][1], sides[1][1])


def _join_items(left: Schema, right: Schema, joined: Schema) -> None:
    """Each element satisfies what either says of its place."""
    sides = [(schema.get("prefixItems", []), schema.get("items", True)) for schema in (left, right)]
    longest = max(len(prefix) for prefix, _ in sides)
    if longest:
        joined["prefixItems"] = [
            both(*(prefix[index] if index < len(prefix) else item for prefix, item in sides))
            for index in range(longest)
        ]
    if "items" in joined:
        joined["items"] = both(sides[0][1], sides[1][1])


def disjoint(left: Schema, right: Schema) -> bool:
    """Whether it is sure that no value satisfies both flat schemas."""
    if "enum" in left or "enum" in right:
        if "enum" not in left:
            left, right = right, left
        allowed = [value for value in listed(left) if has_type(value, types_of(right))]
        if "enum" in right:
            return set(map(identity, allowed)).isdisjoint(map(identity, right["enum"]))
        return not without(allowed, right.get(EXCLUDED, []))
    common = [name for name in TYPES if has_both(name, types_of(left), types_of(right))]
    return all(_disjoint_as(name, left, right) for name in common)


def _disjoint_as(name: str, left: Schema, right: Schema) -> bool:
    """Whether no value of this type satisfies both."""
    if name == "object":
        return _disjoint_objects(left, right) or _disjoint_objects(right, left)
    if name in ("number", "integer"):
        return _below(left, right) or _below(right, left)
    lengths = {"string": "Length", "array": "Items"}.get(name)
    if lengths is None:
        return False
    return any(
        a.get("max" + lengths, float("inf")) < b.get("min" + lengths, 0) for a, b in ((left, right), (right, left))
    )


def _below(left: Schema, right: Schema) -> bool:
    """Whether the greatest number of `left` is below the least of `right`."""
    highs = [(left[key], key == "exclusiveMaximum") for key in ("maximum", "exclusiveMaximum") if key in left]
    lows = [(right[key], key == "exclusiveMinimum") for key in ("minimum", "exclusiveMinimum") if key in right]
    return any(high < low or (high == low and (strict or too)) for high, strict in highs for low, too in lows)


def _disjoint_objects(left: Schema, right: Schema) -> bool:
    """Whether a property that `left` requires is one that `right` forbids or wants otherwise."""
    for name in left.get("required", []):
        mine = left.get("properties", {}).get(name, True)
        theirs = right.get("properties", {}).get(name, right.get("additionalProperties", True))
        if theirs is False and "patternProperties" not in right:
            return True
        if _is_flat(mine) and _is_flat(theirs) and disjoint(normal(mine), normal(theirs)):
            return True
    return False


def _is_flat(schema: Any) -> bool:
    return isinstance(schema, dict) and not schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "not", "if"}


def normal(schema: Schema) -> Schema:
    """A flat schema in the form that `join` expects: `const` as an `enum` of one value, `pattern` as a list, counts given."""
    rest = dict(schema)
    if "const" in rest:
        constant = rest.pop("const")
        rest["enum"] = [value for value in rest.get("enum", [constant]) if same(value, constant)]
    if isinstance(rest.get("pattern"), str):
        rest["pattern"] = [rest["pattern"]]
    if "contains" in rest:
        rest.setdefault("minContains", 1)
    else:
        rest.pop("minContains", None), rest.pop("maxContains", None)
    if rest.get("uniqueItems") is False:
        del rest["uniqueItems"]
    return rest


def listed(schema: Schema) -> list[Any]:
    """The values of a flat schema's `enum` that its type and its exclusions leave."""
    return without([value for value in schema["enum"] if has_type(value, types_of(schema))], schema.get(EXCLUDED, []))


def satisfies(value: Any, key: str, bound: Any) -> bool | None:
    """Whether a value of the type that a bound speaks of keeps it; None if that keyword is not a bound."""
    if key in ("minLength", "minItems"):
        return len(value) >= bound
    if key in ("maxLength", "maxItems"):
        return len(value) <= bound
    if key in ("minimum", "exclusiveMinimum"):
        return bool(value > bound or (value == bound and key == "minimum"))
    if key in ("maximum", "exclusiveMaximum"):
        return bool(value < bound or (value == bound and key == "maximum"))
    if key == "multipleOf":
        return (Fraction(str(value)) / Fraction(str(bound))).denominator == 1
    return None


def without(values: Sequence[Any], excluded: Sequence[Any]) -> list[Any]:
    """The values that are not excluded, each once."""
    gone, kept = set(map(identity, excluded)), dict[Hashable, Any]()
    for value in values:
        kept.setdefault(identity(value), value)
    return [value for key, value in kept.items() if key not in gone]
