"""Values as JSON, exactly: how a program under test and its tests talk. Standard library only; it runs inside sandboxes.

A value of a built-in type is written by its type, so that nothing a program defines (`__eq__`, `__hash__`, a subclass of str)
crosses: a subclass is written as the built-in value it holds. Any other object stays where it is and a number stands for it.

    None True "text" 12 [1, 2]                       as in JSON
    {"float": "0x1.8p+1"} {"int": "0x…"} {"complex": […]} {"bytes": "00ff"}
    {"tuple": […]} {"set": […]} {"frozenset": […]} {"deque": […]} {"range": […]} {"dict": [[key, value], …]}
    {"builtin": "sorted"} {"object": 3}

A message is a length (4 bytes) and JSON.
"""

from __future__ import annotations

import builtins
import json
import os
import types
from collections import deque
from collections.abc import Callable
from typing import Any

EXACT = 2**53  # larger integers are not written as JSON numbers
LONGEST = 2**26  # bytes of a message
DEEPEST = 200  # levels of lists in lists


class WireError(Exception):
    """A value that cannot be written, or a message that is none."""


def encode(value: object, refer: Callable[[object], dict[str, Any]], depth: int = 0) -> Any:
    """A value as JSON; `refer` names an object that is not plain data."""
    if depth > DEEPEST:
        raise WireError("it is nested too deep")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        plain = int.__index__(value)
        return plain if -EXACT < plain < EXACT else {"int": hex(plain)}
    if isinstance(value, float):
        return {"float": float.hex(value)}
    if isinstance(value, complex):
        return {"complex": [complex.__getattribute__(value, part).hex() for part in ("real", "imag")]}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, dict):
        pairs = [(encode(k, refer, depth + 1), encode(v, refer, depth + 1)) for k, v in dict.items(value)]
        return {"dict": pairs}
    for kind in (list, tuple, set, frozenset, deque):
        if isinstance(value, kind):
            items = [encode(item, refer, depth + 1) for item in kind.__iter__(value)]  # type: ignore[arg-type]
            return items if kind is list else {kind.__name__: items}
    if isinstance(value, types.BuiltinFunctionType | type):
        name = value.__name__
        if getattr(builtins, name, None) is value:
            return {"builtin": name}
    return refer(value)


def decode(data: Any, find: Callable[[int], object]) -> Any:
    """The value of a piece of JSON; `find` gives the object that a number stands for."""
    if isinstance(data, list):
        return [decode(item, find) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise WireError("it is not a value")
    ((kind, held),) = data.items()
    match kind:
        case "int":
            return int(held, 16)
        case "float":
            return float.fromhex(held)
        case "complex":
            return complex(*map(float.fromhex, held))
        case "bytes":
            return bytes.fromhex(held)
        case "range":
            return range(*held)
        case "dict":
            return {decode(key, find): decode(item, find) for key, item in held}
        case "tuple" | "set" | "frozenset" | "deque":
            build = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}[kind]
            return build(decode(item, find) for item in held)
        case "builtin":
            return getattr(builtins, held)
        case "object":
            return find(held)
    raise WireError(f"{kind} is not a kind of value")


def send(descriptor: int, message: Any) -> None:
    """Write a message."""
    data = json.dumps(message).encode()
    if len(data) > LONGEST:
        raise WireError("it is too large")
    left = memoryview(len(data).to_bytes(4, "big") + data)
    while left:
        left = left[os.write(descriptor, left) :]


def receive(descriptor: int) -> Any:
    """Read a message; EOFError where there is none."""
    size = int.from_bytes(_read(descriptor, 4), "big")
    if size > LONGEST:
        raise EOFError("the message is too large")
    return json.loads(_read(descriptor, size))


def _read(descriptor: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(descriptor, min(count, 2**20))
        if not part:
            raise EOFError("the other side has ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
