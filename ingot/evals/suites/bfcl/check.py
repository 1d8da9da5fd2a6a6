"""Whether function calls are the right ones, by the rules of the leaderboard's checker.

An answer key lists, for each parameter, the values that are right; "" among them means that it may be left out.

    calls        as many as in the key; those of a parallel question in any order, each taken by the first key that it fits
    parameters   every required one, none that the key does not know
    types        as in the function's description, the elements of a list too; whole numbers pass for floats, a tuple for a list
    texts        compared without blanks, ,./-_*^ and case
    lists        in order; mappings key by key, with the same rule for keys that may be left out

A value of the type of the key's values passes the check of types even if the description says otherwise: keys name variables so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.evals.suites.bfcl.decode import DecodedCall

Function = Mapping[str, Any]  # name, description, parameters
Key = Mapping[str, Mapping[str, Sequence[Any]]]  # {function: {parameter: values}}
TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
LISTS = ("array", "tuple")
IGNORED = re.compile(r"[ ,./\-_*^]")


def right_calls(calls: Sequence[DecodedCall], keys: Sequence[Key], functions: Sequence[Function]) -> bool:
    """Whether every key has a call of its own."""
    if len(calls) != len(keys):
        return False
    described = {each["name"]: each for each in reversed(functions)}
    left = list(calls)
    for key in keys:
        ((name, values),) = key.items()
        found = next((each for each in left if right_call(each, values, described[name])), None)
        if found is None:
            return False
        left.remove(found)
    return True


def right_call(call: DecodedCall, key: Mapping[str, Sequence[Any]], function: Function) -> bool:
    """Whether a call is the one that the key describes."""
    properties, required = function["parameters"]["properties"], function["parameters"]["required"]
    if call.name != function["name"] or any(name not in call.arguments for name in required):
        return False
    if any(name not in call.arguments and "" not in values for name, values in key.items()):
        return False
    return all(
        name in properties and name in key and right_value(value, key[name], properties[name])
        for name, value in call.arguments.items()
    )


def right_value(value: Any, right: Sequence[Any], described: Mapping[str, Any]) -> bool:
    """Whether a value is one of the right ones, for a parameter of this description."""
    expected = TYPES[described["type"]]
    inner = TYPES[described["items"]["type"]] if described["type"] in LISTS else None
    if described["type"] == "tuple" and type(value) is tuple:
        value = list(value)
    if described["type"] == "float" and type(value) is int:
        value = float(value)
    typed = type(value) is expected
    if typed and inner is not None and not any(_elements_fit(value, each, inner) for each in right):
        return False
    if not typed and type(value) is not _type_of(right):
        return False
    variable = not typed or _type_of(right) not in (None, expected)
    if variable:
        return value in right
    if expected is dict:
        return any(each != "" and _same_mapping(value, each) for each in right)
    if expected is list and inner is dict:
        return any(_same_mappings(value, each) for each in right)
    if expected is str:
        return plain(value) in [plain(each) for each in right if isinstance(each, str)]
    if expected is list:
        return [plain(each) for each in value] in [[plain(element) for element in each] for each in right]
    return value in right


def plain(value: Any) -> Any:
    """A text without what does not count; anything else as it is."""
    return IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _type_of(right: Sequence[Any]) -> type | None:
    return next((type(each) for each in right if each != ""), None)


def _elements_fit(value: Sequence[Any], right: Any, inner: type) -> bool:
    """Whether the elements have the type that they should, or that of the right ones; "" says nothing about it."""
    if not isinstance(right, list):
        return True
    return all(type(each) is inner or type(each) is _type_of(right) for each in value)


def _same_mapping(value: Any, right: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(right, dict):
        return False
    for key, each in value.items():
        if key not in right or plain(each) not in [plain(one) for one in right[key]]:
            return False
    return all(key in value or "" in values for key, values in right.items())


def _same_mappings(value: Sequence[Any], right: Any) -> bool:
    return len(value) == len(right) and all(
        each != "" and _same_mapping(one, each) for one, each in zip(value, right, strict=True)
    )
