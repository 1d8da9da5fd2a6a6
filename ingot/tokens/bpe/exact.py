"""The encoder of any tokenizer: the CPU kernel where it is known to be exact, the `tokenizers` library elsewhere.

    exact_encoder(backend)   FastEncoder if the tokenizer is a byte-level BPE whose cuts are known (rules.py), with the library
                             for the few texts it must not touch (exceptions.py); or the library for all, and the reason why

Whatever `tokenizer.json` says, one text with a character of every class (and the awkward cases of the expressions) is
encoded both ways first: a tokenizer, or a version of the library, that gives other ids is left to the library.

Invariant: `encode` gives the ids of `backend.encode(text, add_special_tokens=False)`, with the names of special tokens read as
ordinary text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.text.texts import Texts
from ingot.tokens.bpe.alphabet import BYTE_OF_CHARACTER, UTF8_BYTES
from ingot.tokens.bpe.cache import LONGEST
from ingot.tokens.bpe.classes import character_classes
from ingot.tokens.bpe.encoder import Encoded, FastEncoder
from ingot.tokens.bpe.exceptions import beyond_latin, spells_any
from ingot.tokens.bpe.merges import NONE
from ingot.tokens.bpe.rules import rules_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

AWKWARD = (
    "it's IT'S 'ſ 're 'LL 'x ''s a'b’s\r\n\n \t x\u3000y  z\n   \n//\n/path/x.y 1234567 12 ½٣ é\u0301 e\u0301x \u0301\u0301!"
    "\u0301 HTMLParser camelCase 中文ABC中 ǅabc ʰA aʰ <|endoftext|>\n\n   "
)


class ExactEncoder:
    """Encodes columns of text; may be shared between threads. `reason` says why the library does it all, if it does."""

    def __init__(
        self, backend: Backend, fast: FastEncoder | None, reason: str, added: Sequence[str], normal: bool
    ) -> None:
        self._backend, self._fast, self.reason = backend, fast, reason
        self._added, self._normal = added, normal
        self._lock = threading.Lock()  # the fast encoder is not thread-safe

    @property
    def fast(self) -> bool:
        """Whether the CPU kernel is used."""
        return self._fast is not None

    def encode(self, texts: Texts, end: int | None = None) -> Encoded:
        """The ids of each text, followed by `end` if it is given."""
        if self._fast is None:
            return self._splice(Encoded(np.zeros(0, np.uint32), np.zeros(len(texts) + 1, np.int64)), texts, ..., end)
        with self._lock:
            encoded = self._fast.encode(texts, end)
        return self._splice(encoded, texts, self._for_the_library(texts), end)

    def _for_the_library(self, texts: Texts) -> NDArray[np.bool_]:
        marked = spells_any(texts, self._added) if self._added else np.zeros(len(texts), np.bool_)
        if self._normal:
            for index in np.flatnonzero(beyond_latin(texts) & ~marked).tolist():
                marked[index] = self._backend.normalizer.normalize_str(texts[index]) != texts[index]
        return marked

    def _splice(self, encoded: Encoded, texts: Texts, marked: Any, end: int | None) -> Encoded:
        """`encoded` with the ids of the marked texts as the library gives them."""
        chosen = np.arange(len(texts))[marked]
        if not len(chosen):
            return encoded
        found = self._backend.encode_batch_fast([texts[index] for index in chosen], add_special_tokens=False)
        behind = [] if end is None else [end]
        chunks, counts, done = [], np.diff(encoded.offsets), 0
        for index, encoding in zip(chosen, found, strict=True):
            chunks += [
                encoded.ids[encoded.offsets[done] : encoded.offsets[index]],
                np.array(encoding.ids + behind, np.uint32),
            ]
            counts[index], done = len(chunks[-1]), index + 1
        chunks.append(encoded.ids[encoded.offsets[done] :])
        return Encoded(np.concatenate(chunks), np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]))


def exact_encoder(backend: Backend) -> ExactEncoder:
    """The encoder of a tokenizer of the `tokenizers` library, which must read special names as text."""
    state = json.loads(backend.to_str())
    reason = _why_not(state)
    if reason:
        return ExactEncoder(backend, None, reason, (), False)
    added = [token["content"] for token in state["added_tokens"] if not token["special"]]
    encoder = ExactEncoder(backend, _fast_encoder(state), "", added, state["normalizer"] is not None)
    probe = _probe()
    if encoder.encode(Texts.of([probe])).ids.tolist() != backend.encode(probe, add_special_tokens=False).ids:
        return ExactEncoder(backend, None, "the CPU kernel gave other ids than the library on a trial text", (), False)
    return encoder


def _why_not(state: dict[str, Any]) -> str:
    """Why the CPU kernel cannot encode as this tokenizer does; empty if it can."""
    model = state["model"]
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}, not BPE"
    if model.get("dropout") or model.get("byte_fallback"):
        return "its BPE has dropout or falls back to bytes"
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return "its BPE marks the parts of words"
    if model.get("unk_token") and not all(
        character in model["vocab"] for character, byte in BYTE_OF_CHARACTER.items() if byte in UTF8_BYTES
    ):
        return "it has a token for unknown characters"
    if state.get("truncation") or state.get("padding"):
        return "it cuts or pads what it encodes"
    if state.get("normalizer") and state["normalizer"].get("type") != "NFC":
        return f"its normaliser {state['normalizer'].get('type')} is not known"
    if model.get("ignore_merges") and max(map(len, model["vocab"]), default=0) > LONGEST:
        return f"it leaves words of more than {LONGEST} bytes unmerged"
    if rules_of(state.get("pre_tokenizer")) is None:
        return "its rule for cutting text is not known"
    return ""


def _fast_encoder(state: dict[str, Any]) -> FastEncoder:
    model, rules = state["model"], rules_of(state["pre_tokenizer"])
    if rules is None:
        raise ValueError("ask _why_not first")
    vocabulary: dict[str, int] = model["vocab"]
    pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"])
    merges = (
        (vocabulary[left], vocabulary[right], rank, vocabulary[left + right])
        for rank, (left, right) in enumerate(pairs)
    )
    bytes_ids = [NONE] * 256
    for character, byte in BYTE_OF_CHARACTER.items():
        bytes_ids[byte] = vocabulary.get(character, NONE)
    whole = None
    if model.get("ignore_merges"):
        whole = {
            bytes(BYTE_OF_CHARACTER[character] for character in token): id
            for token, id in vocabulary.items()
            if all(character in BYTE_OF_CHARACTER for character in token)
        }
    return FastEncoder(rules, bytes_ids, merges, whole)


def _probe() -> str:
    """A text with a character of every run of classes, alone and before a letter, and the awkward cases."""
    classes = character_classes()
    firsts = np.flatnonzero(np.diff(classes, prepend=0))
    characters = [chr(code) for code in firsts if not 0xD800 <= code < 0xE000]
    return AWKWARD + "".join(f"{character}a" for character in characters) + "".join(characters)
