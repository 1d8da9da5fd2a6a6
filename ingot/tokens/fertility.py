"""How well a tokenizer fits texts, by group (language, kind, source).

    bytes_per_token        UTF-8 bytes / tokens: higher means shorter sequences
    fertility              tokens / blank-separated words (Ács 2019; Rust et al. 2021)
    continued_word_share   share of words (each with a blank before it) that take two or more tokens

Languages that write no blanks (Chinese, Japanese, Thai) have hardly any words in this sense: compare them by bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ingot.data.text.texts import Texts
from ingot.tokens.bpe.encoder import Encoded

ALL = "all"


class Encoder(Protocol):
    """Anything that encodes a column of texts."""

    def encode(self, texts: Texts, end: int | None = None) -> Encoded: ...


def measure(encoder: Encoder, texts: Iterable[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Numbers for each group of (group, text) and for all together; a group without a word is left out."""
    grouped: dict[str, list[str]] = defaultdict(list)
    for group, text in texts:
        grouped[group].append(text)
    sums = {group: _count(encoder, members) for group, members in grouped.items()}
    sums |= {ALL: sum(sums.values(), Counter[str]())}
    return {
        group: {
            **{name: count[name] for name in ("documents", "bytes", "tokens", "words")},
            "bytes_per_token": round(count["bytes"] / count["tokens"], 4),
            "fertility": round(count["tokens"] / count["words"], 4),
            "continued_word_share": round(count["continued"] / count["words"], 4),
        }
        for group, count in sorted(sums.items())
        if count["tokens"] and count["words"]
    }


def _count(encoder: Encoder, members: list[str]) -> Counter[str]:
    column = Texts.of(members)
    words = Counter(word for text in members for word in text.split())
    pieces = np.diff(encoder.encode(Texts.of([f" {word}" for word in words])).offsets)
    return Counter(
        documents=len(members),
        bytes=column.bytes,
        tokens=len(encoder.encode(column).ids),
        words=words.total(),
        continued=int((pieces > 1) @ np.fromiter(words.values(), np.int64, len(words))),
    )
