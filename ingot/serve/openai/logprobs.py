"""Log-probabilities in the formats of the chat and completions endpoints.

In a chat there is one entry for each token of the content (reasoning, calls and the end of the turn have none); the
entries of text that is held back wait with it, so that those of a stop string are never sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ingot.serve.openai.scores import Score
from ingot.tokens.tokenizer import Tokenizer

COLUMNS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
LOWEST = -9999.0  # stands for minus infinity, which JSON does not have


def chat_entry(
    tokenizer: Tokenizer, token: int, logprob: float, top: Sequence[tuple[int, float]], wanted: int
) -> dict[str, Any]:
    """A token of a chat's content."""
    return _chat_token(tokenizer, token, logprob) | {
        "top_logprobs": [_chat_token(tokenizer, other, value) for other, value in top[:wanted]]
    }


def _chat_token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    data = tokenizer.decode_bytes((token,))
    return {"token": data.decode("utf-8", "replace"), "logprob": max(logprob, LOWEST), "bytes": list(data)}


def prompt_entries(tokenizer: Tokenizer, tokens: Sequence[int], scores: Sequence[Score]) -> list[dict[str, Any] | None]:
    """For each token of a prompt: the likeliest tokens and itself, by id, as vLLM's `prompt_logprobs`; the first has none.

    A token that is not among the likeliest has no rank here.
    """
    entries: list[dict[str, Any] | None] = []
    for token, (logprob, top) in zip(tokens, scores, strict=True):
        if logprob is None:
            entries.append(None)
            continue
        found: dict[int, tuple[float, int | None]] = {id: (value, rank) for rank, (id, value) in enumerate(top, 1)}
        found.setdefault(token, (logprob, None))
        entries.append(
            {
                str(id): {"logprob": max(value, LOWEST), "rank": rank, "decoded_token": tokenizer.piece(id)}
                for id, (value, rank) in found.items()
            }
        )
    return entries


class Pending:
    """Entries that wait until the text of their token may be shown; `start` is that text's first character."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, dict[str, Any]]] = deque()

    def add(self, entry: dict[str, Any], start: int) -> None:
        """A token has come."""
        self._entries.append((start, entry))

    def take(self, released: int | None) -> list[dict[str, Any]]:
        """The entries of tokens that begin within the first `released` characters; None: all."""
        taken = []
        while self._entries and (released is None or self._entries[0][0] < released):
            taken.append(self._entries.popleft()[1])
        return taken


class LogprobColumns:
    """The four columns of a text completion; offsets are in characters of the whole text, an echoed prompt included."""

    def __init__(self, tokenizer: Tokenizer, wanted: int) -> None:
        self._tokenizer, self._wanted = tokenizer, wanted
        self._rows: deque[dict[str, Any]] = deque()

    def add(self, token: int, offset: int, logprob: float | None, top: Sequence[tuple[int, float]]) -> None:
        """The next token, which begins at `offset`; the first of a prompt has nothing to be likely after."""
        piece = self._tokenizer.piece(token)
        likely = {self._tokenizer.piece(other): max(value, LOWEST) for other, value in top[: self._wanted]}
        row: dict[str, Any] = {"tokens": piece, "text_offset": offset}
        if logprob is None:
            row |= {"token_logprobs": None, "top_logprobs": None}
        else:
            value = max(logprob, LOWEST)
            row |= {"token_logprobs": value, "top_logprobs": likely | {piece: value}}
        self._rows.append(row)

    def take(self, released: int | None) -> dict[str, list[Any]]:
        """The rows of tokens that begin within the first `released` characters, since the last time; None: all."""
        taken = []
        while self._rows and (released is None or self._rows[0]["text_offset"] < released):
            taken.append(self._rows.popleft())
        return {name: [row[name] for row in taken] for name in COLUMNS}
