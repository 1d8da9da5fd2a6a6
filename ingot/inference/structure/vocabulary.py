"""Gives llguidance the vocabulary of a tokenizer: the bytes of each id, and which ids are special.

llguidance needs a token that ends a text, which it allows where the text is complete. It gets one beyond the tokenizer's own,
since the engine knows which tokens end a text; masks leave it out.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ingot.inference.structure.cache import ByteBoundedCache
from ingot.inference.structure.library import library
from ingot.tokens.tokenizer import Tokenizer

GRAMMAR_BYTES = 64 << 20  # compiled grammars that are cached for a tokenizer
MASK_BYTES = 32 << 20  # masks that are cached for a tokenizer, for all its grammars together


class AllowedTokens(NamedTuple):
    """The tokens that a state allows; `number` names the state."""

    mask: NDArray[np.uint8]
    complete: bool
    number: int


class Vocabulary:
    """A tokenizer for llguidance, with the caches of its grammars and masks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.size = tokenizer.vocabulary_size
        # by grammar: its constraint (constraint.py), or the error that refused it
        self.grammars: ByteBoundedCache[object] = ByteBoundedCache(GRAMMAR_BYTES)
        self.masks: ByteBoundedCache[AllowedTokens] = ByteBoundedCache(MASK_BYTES)
        self.tokens: Any = library().LLTokenizer(library().TokenizerWrapper(_Tokens(tokenizer)))


class _Tokens:
    """The tokenizer interface of llguidance."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        size = tokenizer.vocabulary_size
        self.tokens = [*(tokenizer.decode_bytes((id,)) for id in range(size)), b"<end>"]
        self.eos_token_id = size
        self.special_token_ids = sorted({*tokenizer.special.values(), size})

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of a text that must follow: as the model would write it, if that gives back the same bytes."""
        ids = self._tokenizer.encode(text.decode())
        return ids if self._tokenizer.decode_bytes(ids) == text else self._longest(text)

    def _longest(self, text: bytes) -> list[int]:
        """Each time the longest token that fits, up to bytes that no token begins with."""
        ids: list[int] = []
        while text:
            length = next((n for n in range(min(len(text), self._length), 0, -1) if text[:n] in self._ids), 0)
            if length == 0:
                break
            ids.append(self._ids[text[:length]])
            text = text[length:]
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        special = {*self.special_token_ids}
        return {piece: id for id, piece in enumerate(self.tokens) if id not in special}

    @cached_property
    def _length(self) -> int:
        return max(map(len, self._ids))


_vocabularies: WeakKeyDictionary[Tokenizer, Vocabulary] = WeakKeyDictionary()
_lock = threading.Lock()


def known_vocabulary(tokenizer: Tokenizer) -> Vocabulary | None:
    """The vocabulary of a tokenizer if it was made before. Never waits."""
    return _vocabularies.get(tokenizer)


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer, made once: that takes up to a second."""
    with _lock:
        if tokenizer not in _vocabularies:
            _vocabularies[tokenizer] = Vocabulary(tokenizer)
        return _vocabularies[tokenizer]
