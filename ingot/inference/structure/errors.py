"""The error of structured output: what llguidance says, and what to do about it."""

from __future__ import annotations

import re

from ingot.workspace.errors import IngotError

POSITION = re.compile(r"^at \d+\(\d+\): ")  # in the grammar, which the user has not seen
LONGEST = 300  # characters of llguidance's message
NO_TOKEN = "NoExtension"  # what llguidance calls a text that no token can continue
FIXES = {
    "Unimplemented keys": "leave them out, and check the answer yourself",
    "Unknown format": "leave it out, or give a pattern",
    "oneOf": "use anyOf",
    "Unsatisfiable": "loosen it",
    "regex": r"use the syntax of Rust's regex, without look-around, backreferences and \b",
    "too many": "give a simpler one: smaller bounds, shorter patterns",
    "too big": "give a simpler one: fewer properties or choices",
    "max is": "give a simpler one: fewer optional properties",
}


class StructureError(IngotError):
    """A structure that cannot be compiled or followed, or a token that it does not allow."""


def refusal(error: str) -> StructureError:
    """llguidance's error without its excerpt of the grammar, and with what to do."""
    if error.startswith(NO_TOKEN):
        fix = "loosen it, or allow characters that the tokenizer has"
        return StructureError("no text satisfies it that this tokenizer can write", place="structure", fix=fix)
    lines = POSITION.sub("", error).splitlines() or [""]
    reasons = [line.removeprefix("error:").strip() for line in lines[1:] if line.startswith("error:")]
    first = lines[0].strip()
    message = " ".join([first if len(first) <= LONGEST else first[:LONGEST] + "…", *reasons])
    fix = next((fix for word, fix in FIXES.items() if word in message), "correct it")
    return StructureError(f"llguidance refuses it: {message}", place="structure", fix=fix)
