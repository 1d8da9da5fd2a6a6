"""Texts through constraints: read a given text, or write one at random."""

from __future__ import annotations

import random

import numpy as np

from ingot.inference.structure.constraint import Constraint, State
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import IngotError


def accepts(constraint: Constraint, text: str | bytes) -> bool:
    """Whether a text is allowed as a whole, byte by byte (token i must be the byte i)."""
    state = constraint.start()
    for byte in text.encode() if isinstance(text, str) else text:
        try:
            state = state.advance(byte)
        except IngotError:
            return False
    return state.complete


def cut(text: bytes, pieces: dict[bytes, int], longest: int, chance: random.Random) -> list[int]:
    """A text as tokens, cut at random."""
    tokens, at = [], 0
    while at < len(text):
        lengths = [n for n in range(1, longest + 1) if at + n <= len(text) and text[at : at + n] in pieces]
        length = chance.choice(lengths)
        tokens.append(pieces[text[at : at + length]])
        at += length
    return tokens


def write(constraint: Constraint, tokenizer: Tokenizer, chance: random.Random, patience: int = 40) -> bytes | None:
    """A random text along the masks; after `patience` tokens it prefers what closes. None if it still found no end."""
    state: State = constraint.start()
    tokens: list[int] = []
    closing = [id for text in ('"', "}", "]", '"}', ",", ":", "0", "b", "x", "@") for id in tokenizer.encode(text)]
    while True:
        allowed = np.flatnonzero(state.mask())
        assert state.complete or len(allowed), f"dead end after {tokenizer.decode_bytes(tokens)!r}"
        if state.complete and (not len(allowed) or len(tokens) >= patience or chance.random() < 0.3):
            return tokenizer.decode_bytes(tokens)
        if len(tokens) > 20 * patience:
            return None
        pick = int(allowed[chance.randrange(len(allowed))])
        if len(tokens) >= patience and chance.random() < 0.8:
            mask = state.mask()
            pick = chance.choice([id for id in closing if mask[id]] or [pick])
        elif chance.random() < 0.3:  # favour short tokens, so that structure gets its share
            few = [int(allowed[chance.randrange(len(allowed))]) for _ in range(20)]
            pick = min(few, key=lambda id: len(tokenizer.decode_bytes((id,))))
        tokens.append(pick)
        state = state.advance(pick)
