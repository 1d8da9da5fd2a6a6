"""The arguments of a tool call while they are written, as JSON: whatever the format, `{"key": value}` comes out, piece by piece.

| body | what the model writes | formats |
|---|---|---|
| `JsonBody` | a JSON object | harmony, deepseek_v3, deepseek_v31, kimi_k2, mistral |
| `TaggedBody` | keys and values between tags | glm45, qwen3_coder, seed_oss, minimax_m2, deepseek_v32, deepseek_v4 |
| `BareKeyBody` | JSON whose keys are bare words and whose texts stand between marks | gemma4 |

Between tags nothing says whether `42` is a number or a text. The tool's schema decides; without one, what reads as JSON is JSON.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ingot.tokens.calls import read_json
from ingot.tokens.syntax import State

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
PYTHON_NAMES = {"True": "true", "False": "false", "None": "null"}


class Quotes:
    """Whether a text has got inside a quoted string."""

    def __init__(self, marks: str = '"') -> None:
        self._marks = marks
        self._escaped = False
        self.open = ""  # the mark that opened it

    def push(self, text: str) -> None:
        for character in text:
            if self._escaped:
                self._escaped = False
            elif self.open:
                self._escaped = character == "\\"
                self.open = "" if character == self.open else self.open
            elif character in self._marks:
                self.open = character


class JsonBody:
    """A JSON object: its characters up to the brace that closes it, as the model wrote them."""

    def __init__(self) -> None:
        self.tail = ""  # behind the object
        self._quotes = Quotes()
        self._begun = self._closed = False
        self._depth = 0

    @property
    def in_string(self) -> bool:
        return bool(self._quotes.open)

    def push(self, text: str) -> str:
        """The part of `text` that belongs to the object."""
        text = text if self._begun else text.lstrip()
        self._begun = self._begun or bool(text)
        for index, character in enumerate(text):
            if self._closed:
                self.tail += text[index:]
                return text[:index]
            was_open = self._quotes.open
            self._quotes.push(character)
            if not was_open and character in "{[":
                self._depth += 1
            elif not was_open and character in "}]":
                self._depth -= 1
                self._closed = self._depth <= 0
        return text

    def finish(self) -> str:
        return ""


class TaggedBody:
    """Keys and values between marks. `types` are those that the schema has for each key; `padding` surrounds a value.

    A value ends with its mark only if the mark of another value, or of the end, follows: `</parameter>` inside a program that is
    given as a value is part of the program.
    """

    def __init__(self, types: Mapping[str, Collection[str]], padding: str) -> None:
        self._types, self._padding = types, padding
        self._keys = 0
        self._key = self._value = ""
        self._kind: State | None = None  # of the value that was begun
        self._ended = ""  # the mark after it and what follows, until it is sure that the value is over
        self._shown: int | None = None  # characters of a text that were passed on
        self.loose = ""  # what stood outside keys and values

    def key(self, text: str) -> None:
        self._key += text

    def begin(self, kind: State) -> None:
        """A value begins."""
        self._kind, self._value, self._shown, self._ended = kind, "", None, ""

    def end(self, mark: str) -> None:
        """The value may be over."""
        self._ended = mark

    @property
    def ended(self) -> State | None:
        """The kind of a value that may be over."""
        return self._kind if self._ended else None

    def go_on(self) -> State | None:
        """The value was not over; its state, if there is one."""
        if not self._ended:
            return None
        self._value, self._ended = self._value + self._ended, ""
        return self._kind

    def blank(self, text: str) -> None:
        """Text between values."""
        if self._ended:
            self._ended += text
        else:
            self.loose += text

    def value(self, text: str) -> str:
        """The JSON that more of a value gives: a text comes as it is written, anything else when it is complete."""
        self._value += text
        if not self._is_text:
            return ""
        head = ""
        if self._shown is None:
            if len(self._value) < len(self._padding):
                return ""
            head, self._shown = self._open() + '"', len(self._padding) * self._value.startswith(self._padding)
        end = max(self._shown, len(self._value) - len(self._padding))
        text, self._shown = self._value[self._shown : end], end
        return head + _escaped(text)

    def close(self) -> str:
        """The rest of a value that is over."""
        if self._kind is None:
            return ""
        value, shown, is_text = self._value.removesuffix(self._padding), self._shown, self._is_text
        self._kind, self._ended = None, ""
        if shown is not None:
            text = _escaped(value[shown:]) + '"'
        else:
            value = value.removeprefix(self._padding)
            text = self._open() + (_quoted(value) if is_text else typed(value, self._types.get(self._key.strip(), ())))
        self._key = ""
        return text

    @property
    def in_value(self) -> bool:
        """Whether a value is begun and has not ended."""
        return self._kind is not None and not self._ended

    @property
    def _is_text(self) -> bool:
        return self._kind == "text" or (
            self._kind == "value" and set(self._types.get(self._key.strip(), ())) == {"string"}
        )

    def _open(self) -> str:
        self._keys += 1
        return ("{" if self._keys == 1 else ", ") + _quoted(self._key.strip()) + ": "

    def finish(self) -> str:
        if not self._keys and self.loose.strip():  # some models write JSON where tags belong
            return self.loose.strip()
        return "}" if self._keys else "{}"


class BareKeyBody:
    """`{city:<|"|>Bern<|"|>,days:[1,2]}` with its first brace already read."""

    def __init__(self) -> None:
        self._word = ""
        self._begun = False

    def push(self, text: str) -> str:
        """The JSON of more text outside strings."""
        made = self.open()
        for character in text:
            if character in "{}[],:":
                made += self._flush(character == ":") + character
            else:
                self._word += character
        return made

    def open(self) -> str:
        """The first brace, once."""
        head, self._begun = "" if self._begun else "{", True
        return head

    def quote(self) -> str:
        """The mark around a text."""
        return self.open() + '"'

    def string(self, text: str) -> str:
        """The JSON of text inside a string."""
        return _escaped(text)

    def _flush(self, is_key: bool) -> str:
        word, self._word = self._word.strip(), ""
        if not word:
            return ""
        value = read_json(word)
        if is_key or (isinstance(value, ValueError) and word not in PYTHON_NAMES):
            return _quoted(word)
        return PYTHON_NAMES.get(word, word)

    def finish(self) -> str:
        return self.open() + self._flush(False)


def typed(text: str, types: Collection[str]) -> str:
    """The JSON of a value that is written without quotes; `types` are the JSON types that it may have, if that is known."""
    value, spelt = read_json(text), text
    if isinstance(value, ValueError) and types and set(types) != {"string"}:
        spelt = _from_python(text)
        value = read_json(spelt)
    if isinstance(value, ValueError) or (isinstance(value, str) and "string" in types):
        return _quoted(text)
    allowed = tuple(kind for name in types for kind in _kinds(name))
    fits = not types or (isinstance(value, allowed) and (not isinstance(value, bool) or "boolean" in types))
    return spelt.strip() if fits or "string" not in types else _quoted(text)


def _from_python(text: str) -> str:
    """The JSON of a Python literal, as some templates print values that are no text; the text itself if it is none."""
    try:
        return json.dumps(ast.literal_eval(text.strip()), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return text


def _kinds(name: str) -> Iterator[type]:
    kinds = TYPES.get(name, ())
    yield from kinds if isinstance(kinds, tuple) else (kinds,)


def argument_types(tool: Mapping[str, Any] | None) -> dict[str, set[str]]:
    """The JSON types of each argument of a tool, as far as its schema says them."""
    schema = (tool or {}).get("parameters")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return (
        {name: set(_schema_types(each)) for name, each in properties.items()} if isinstance(properties, Mapping) else {}
    )


def _schema_types(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    type_ = schema.get("type")
    yield from [type_] if isinstance(type_, str) else [each for each in type_ or () if isinstance(each, str)]
    names = {kind: name for name, kind in TYPES.items() if isinstance(kind, type)}
    yield from (names.get(type(value), "number") for value in schema.get("enum") or ())
    for word in ("anyOf", "oneOf"):
        for inner in schema.get(word) or ():
            yield from _schema_types(inner)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _escaped(text: str) -> str:
    return _quoted(text)[1:-1]
