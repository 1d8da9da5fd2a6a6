"""The algebra of turns against Python's own regular expressions, over every short sequence of tokens."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from ingot.inference.sampling import Constraint
from ingot.serve.openai.turns import Anything, Chain, Either, Optional, Several, Token
from ingot.workspace.errors import IngotError

LETTERS = "abcd"
SIZE = len(LETTERS)
A, B, C, D = (Token(id, SIZE) for id in range(SIZE))
NOT_D = Anything([3], SIZE)

CASES: list[tuple[Constraint, str]] = [
    (A, "a"),
    (NOT_D, "[abc]*"),
    (Chain(A, B), "ab"),
    (Chain(Optional(A), B), "a?b"),
    (Chain(Optional(A), Optional(B), Optional(C)), "a?b?c?"),
    (Either(Chain(A, B), Chain(C, D)), "ab|cd"),
    (Several(A), "a+"),
    (Several(Chain(A, B)), "(ab)+"),
    (Chain(Several(Chain(A, Optional(B))), C), "(ab?)+c"),
    (Chain(NOT_D, D), "[abc]*d"),
    (Chain(NOT_D, Optional(Several(Chain(D, A)))), "[abc]*(da)*"),
    (Chain(Optional(Chain(D, NOT_D, D)), Several(Chain(A, B))), "(d[abc]*d)?(ab)+"),  # thinking, then calls
    (Chain(Chain(NOT_D, D), Either(Several(Chain(A, B)), C)), "[abc]*d((ab)+|c)"),
]


@pytest.mark.parametrize(("constraint", "pattern"), CASES, ids=[pattern for _, pattern in CASES])
def test_the_same_texts_are_allowed(constraint: Constraint, pattern: str) -> None:
    """A text of up to four tokens can be written if and only if it is the beginning of a match, and may end if it is one."""
    texts = ["".join(text) for length in range(9) for text in product(LETTERS, repeat=length)]
    matches = {text for text in texts if re.fullmatch(pattern, text)}
    begun = {text[:length] for text in matches for length in range(len(text) + 1)}
    for text in (text for text in texts if len(text) <= 4):  # a match that begins so ends within eight
        state, possible = constraint.start(), True
        for letter in text:
            id = LETTERS.index(letter)
            possible = bool(state.mask()[id])
            if not possible:
                with pytest.raises(IngotError):
                    state.advance(id)
                break
            state = state.advance(id)
        assert possible == (text in begun), text
        if possible:
            assert state.complete == (text in matches), text
            assert list(state.mask()) == [text + letter in begun for letter in LETTERS], text


def test_masks_are_made_once_and_never_changed() -> None:
    state = Chain(NOT_D, D).start()
    mask = state.mask()
    after = state.advance(0).advance(1)
    assert after is state.advance(0) is state and after.mask() is mask
    assert mask.dtype == np.uint8 and list(mask) == [1, 1, 1, 1]
