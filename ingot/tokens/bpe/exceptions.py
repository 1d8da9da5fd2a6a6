"""Finds texts that the CPU kernel must not encode: they spell an added token, or the normaliser may change them.

An added token that is no special one (Qwen: `<tool_call>`) is found in a text before anything is cut, with rules of its own
about blanks and words around it. Such texts are rare, so they are only found here and left to the library.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import loop
from ingot.data.text.texts import Texts

FIRST_UNSURE = 0xCC  # the first byte of U+0300; characters below are their own composed form (NFC) in every context


@loop
def mark_spelling(
    data: np.ndarray, offsets: np.ndarray, words: np.ndarray, bounds: np.ndarray, begins: np.ndarray, marked: np.ndarray
) -> None:
    """Mark the texts that hold one of the words; `begins` says which bytes a word begins with."""
    for text in range(len(offsets) - 1):
        for at in range(offsets[text], offsets[text + 1]):
            if not begins[data[at]] or marked[text]:
                continue
            for word in range(len(bounds) - 1):
                size = bounds[word + 1] - bounds[word]
                if at + size > offsets[text + 1]:
                    continue
                same = 0
                while same < size and data[at + same] == words[bounds[word] + same]:
                    same += 1
                if same == size:
                    marked[text] = True
                    break


def spells_any(texts: Texts, words: Sequence[str]) -> NDArray[np.bool_]:
    """Whether each text holds one of the words."""
    spelled = [word.encode("utf-8") for word in words]
    begins = np.zeros(256, np.bool_)
    begins[[word[0] for word in spelled]] = True
    bounds = np.cumsum([0, *map(len, spelled)], dtype=np.int64)
    marked = np.zeros(len(texts), np.bool_)
    mark_spelling(texts.data, texts.offsets, np.frombuffer(b"".join(spelled), np.uint8), bounds, begins, marked)
    return marked


def beyond_latin(texts: Texts) -> NDArray[np.bool_]:
    """Whether each text holds a character from U+0300 on."""
    found = np.flatnonzero(texts.data[texts.offsets[0] : texts.offsets[-1]] >= FIRST_UNSURE) + texts.offsets[0]
    return np.diff(np.searchsorted(found, texts.offsets)) > 0
