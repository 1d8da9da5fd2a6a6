"""A tokenizer with more special tokens, or with another chat template. Old ids and what text encodes to stay the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ingot.tokens.chat import ChatFormat
from ingot.tokens.template_files import template_options, with_options
from ingot.tokens.tokenizer import (
    FORMAT_FILE,
    GENERATION_CONFIG,
    TEMPLATE_FILE,
    THINK_END,
    THINK_START,
    TOKENIZER_CONFIG,
    TOKENIZER_FILE,
    TOOL_CALL_END,
    TOOL_CALL_START,
    TOOL_RESPONSE_END,
    TOOL_RESPONSE_START,
    TURN_END,
    TURN_START,
    Tokenizer,
)
from ingot.workspace.errors import RecipeError

GROUPS: dict[str, tuple[str, ...]] = {
    "think": (THINK_START, THINK_END),
    "tools": (TOOL_CALL_START, TOOL_CALL_END, TOOL_RESPONSE_START, TOOL_RESPONSE_END),
    "turns": (TURN_START, TURN_END),
}


def token_names(wanted: Sequence[str]) -> list[str]:
    """The tokens of groups and single ones: `think`, `tools`, `turns`, `<scratchpad>`."""
    for name in wanted:
        if name not in GROUPS and not (name.startswith("<") and name.endswith(">")):
            raise RecipeError(
                f"{name!r} is neither a group of tokens nor a token",
                place="tokens",
                fix=f"use {', '.join(GROUPS)}, or a name in angle brackets",
            )
    return list(dict.fromkeys(token for name in wanted for token in GROUPS.get(name, (name,))))


def with_special_tokens(tokenizer: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """The tokenizer with these special tokens; those that it has keep their ids, new ones come behind all others."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend

    new = [name for name in names if name not in tokenizer.special]
    if not new:
        return tokenizer
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in new])
    files = tokenizer.to_files() | {TOKENIZER_FILE: (backend.to_str(pretty=True) + "\n").encode()}
    config = _json(files, TOKENIZER_CONFIG)
    if "added_tokens_decoder" in config:  # transformers 4 lists them a second time
        details = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
        config["added_tokens_decoder"] |= {str(backend.token_to_id(name)): {"content": name, **details} for name in new}
        files[TOKENIZER_CONFIG] = _bytes(config)
    return Tokenizer(backend, tokenizer.chat_template, files)


def with_template(tokenizer: Tokenizer, template: str) -> Tokenizer:
    """The tokenizer with this chat template; generation stops at the tokens that end its turns.

    A template whose option `end` is empty ends its turns with the tokenizer's own end of a text. A format that was named for
    the old template goes with it.
    """
    if template_options(template).get("end") == "":
        template = with_options(template, {"end": tokenizer.piece(tokenizer.end_of_text)})
    files = tokenizer.to_files() | {TEMPLATE_FILE: template.encode()}
    files.pop(FORMAT_FILE, None)
    config = _json(files, TOKENIZER_CONFIG)
    if config.pop("chat_template", None) is not None:
        files[TOKENIZER_CONFIG] = _bytes(config)
    changed = Tokenizer(tokenizer.backend, template, files)
    generation = _json(files, GENERATION_CONFIG)
    if GENERATION_CONFIG in files:
        ends = list(dict.fromkeys([*ChatFormat(changed).turn_ends, *tokenizer.ends]))
        files[GENERATION_CONFIG] = _bytes(generation | {"eos_token_id": ends})
        changed = Tokenizer(tokenizer.backend, template, files)
    return changed


def _json(files: dict[str, bytes], name: str) -> dict[str, Any]:
    return dict(json.loads(files.get(name, b"{}")))


def _bytes(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
