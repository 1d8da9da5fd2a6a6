r"""Writes JSON schemas, regular expressions and choices as rules of llguidance's grammars, a dialect of Lark.

    schema_rule({"type": "integer"})     %json {"type": "integer", …}
    regex_rule(r"\d+")                   /[0-9]+/
    choice_rule(["yes", "no"])           /(?:yes|no)/
    token_rule(7)                        <[7]>           exactly this token, special or not
    TEXT                                 any text, or none

The syntax is docs/syntax.md of github.com/guidance-ai/llguidance. A rule can be used alone (`start: RULE`) or as a part of a
grammar, for example of a turn that thinks before it answers:

    start: <[5]> /(?s:.*)/ <[6]> %json {"type": "integer"}

Special tokens are never part of the text that a schema, expression or TEXT allows: only `token_rule` allows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ingot.inference.structure.errors import StructureError
from ingot.inference.structure.formats import with_exact_formats
from ingot.inference.structure.library import library

TEXT = "/(?s:.*)/"
JSON_OPTIONS = {
    # one blank or none after ":" and ",", and no other white space: compact JSON and Python's json.dumps both fit
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    # a condition that cannot be enforced is an error
    "lenient": False,
    "coerce_one_of": False,
}
PUNCTUATION = re.compile(r"[\\.+*?()|\[\]{}^$#&\-~/]")


def schema_rule(schema: dict[str, Any] | bool) -> str:
    """JSON that is valid under a JSON schema."""
    if schema is False:
        raise StructureError("no text satisfies it", place="schema false", fix="loosen it")
    if schema is not True and not isinstance(schema, dict):
        raise StructureError("not a schema", place="#", fix="a schema is an object, true or false")
    plain = {} if schema is True else {key: value for key, value in schema.items() if key != "x-guidance"}
    try:
        return "%json " + json.dumps({"x-guidance": JSON_OPTIONS, **with_exact_formats(plain)}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise StructureError(f"the schema is not JSON: {error}", place="#", fix="give a plain JSON schema") from error


def regex_rule(pattern: str) -> str:
    r"""Text that matches the whole of a regular expression in the syntax of Rust's `regex`, with ASCII \d, \w and \s."""
    _check_unicode(pattern)
    if (len(pattern) - len(pattern.rstrip("\\"))) % 2:
        raise StructureError("a regular expression ends with a backslash", place="regex", fix="write \\\\ for one")
    return f"/{library().regex_to_lark(pattern, 'dws')}/"


def choice_rule(choices: Sequence[str]) -> str:
    """One of these texts."""
    if not choices:
        raise StructureError("no text satisfies it", place="choice []", fix="give at least one choice")
    return f"/(?:{'|'.join(map(_literal, choices))})/"


def token_rule(id: int) -> str:
    """Exactly this token."""
    return f"<[{id}]>"


def _literal(text: str) -> str:
    _check_unicode(text)
    escaped = PUNCTUATION.sub(r"\\\g<0>", text)
    return "".join(character if character >= " " else f"\\x{ord(character):02x}" for character in escaped)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StructureError("it contains a lone surrogate", place=repr(text[:80]), fix="give valid Unicode") from error
