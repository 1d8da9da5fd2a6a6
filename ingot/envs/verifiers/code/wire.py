"""Values as JSON, exactly: how a program under test and its tests talk. Standard library only; it runs inside sandboxes.

A value of a built-in type is written by its type, so that nothing a program defines (`__eq__`, `__hash__`, a subclass of str)
crosses: a subclass is written as the built-in value it holds. Any other object stays where it is and a reference stands for it.

    None True "text" 12 [1, 2]                       as in JSON
    {"float": "0x1.8p+1"} {"int": "0x…"} {"complex": […]} {"bytes": "00ff"}
    {"tuple": […]} {"set": […]} {"frozenset": […]} {"deque": […]} {"range": […]} {"dict": [[key, value], …]}
    {"builtin": "sorted"} {"object": 3}              references

`decode` reads what `encode` writes and refuses all else. It makes plain data; what a reference stands for is the reader's to
say, and the tests' side never takes it for an object of its own (`checks.py`). A message is a length (4 bytes) and JSON.
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
BUILTINS = {  # functions and types that a name stands for
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, types.BuiltinFunctionType | type) and value.__name__ == name
}
LEAVES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], str]]] = {  # how each is read, and how it is written
    "int": (lambda held: int(held, 16), hex),
    "float": (float.fromhex, float.hex),
    "bytes": (bytes.fromhex, bytes.hex),
}
COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque,
}  # fmt: skip


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
        return {"range": [encode(item, refer, depth + 1) for item in (value.start, value.stop, value.step)]}
    if isinstance(value, dict):
        pairs = [(encode(k, refer, depth + 1), encode(v, refer, depth + 1)) for k, v in dict.items(value)]
        return {"dict": pairs}
    for kind in (list, tuple, set, frozenset, deque):
        if isinstance(value, kind):
            items = [encode(item, refer, depth + 1) for item in kind.__iter__(value)]  # type: ignore[arg-type]
            return items if kind is list else {kind.__name__: items}
    if isinstance(value, types.BuiltinFunctionType | type):
        name = value.__name__
        if BUILTINS.get(name) is value:
            return {"builtin": name}
    return refer(value)


def decode(data: Any, find: Callable[[str, Any], object], depth: int = 0) -> Any:
    """The value of what `encode` wrote; `find` gives what a reference, a kind and a name or number, stands for."""
    if depth > DEEPEST:
        raise WireError("it is nested too deep")
    if data is None or isinstance(data, bool | str) or (isinstance(data, int) and -EXACT < data < EXACT):
        return data
    if isinstance(data, list):
        return [decode(item, find, depth + 1) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise WireError("it is not a value")
    ((kind, held),) = data.items()
    if (kind == "object" and type(held) is int) or (kind == "builtin" and isinstance(held, str) and held in BUILTINS):
        return find(kind, held)
    try:
        return _decode_kind(kind, held, find, depth)
    except (ValueError, TypeError, OverflowError) as error:
        raise WireError(f"it is no {kind[:20]}: {error}") from None


def _decode_kind(kind: str, held: Any, find: Callable[[str, Any], object], depth: int) -> Any:
    """A value that is written by its type."""
    if kind in LEAVES:
        read, write = LEAVES[kind]
        value = read(held)
        if write(value) != held or (kind == "int" and -EXACT < value < EXACT):
            raise WireError(f"it is not written as {kind}s are")
        return value
    if kind == "complex":
        return complex(*(_decode_kind("float", part, find, depth) for part in _of_length(held, 2)))
    if kind == "range":
        return range(*(_integer(decode(part, find, depth + 1)) for part in _of_length(held, 3)))
    if kind == "dict":
        pairs = [_of_length(pair, 2) for pair in _of_length(held, None)]
        found = {decode(key, find, depth + 1): decode(item, find, depth + 1) for key, item in pairs}
    elif kind in COLLECTIONS:
        found = COLLECTIONS[kind]([decode(item, find, depth + 1) for item in _of_length(held, None)])
    else:
        raise WireError(f"{kind[:20]} is not a kind of value")
    if len(found) != len(held):
        raise WireError("it holds the same twice")
    return found


def _of_length(held: Any, length: int | None) -> list[Any]:
    if not isinstance(held, list) or length not in (None, len(held)):
        raise WireError("it has the wrong form")
    return held


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise WireError("it is no whole number")
    return value


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
