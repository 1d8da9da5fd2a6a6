"""Streams text from tokens: whole characters only, and nothing that may turn out to be part of a stop string.

A token may end in the middle of a character and a stop string in the middle of a token, so text is held back: bytes
until their character is complete, characters while they are the beginning of a stop string. The text ends before the
stop string that is complete first (of several that end together, before the longest).

Invariant: however a text is cut into tokens, what `push` and `finish` give, put together, is the text of all tokens,
special ones left out, up to that stop string; and no `push` ever gives a character that later proves to be part of it.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from ingot.tokens.tokenizer import Tokenizer


class StopStrings:
    """Text up to the first stop string; `stopped` says that one was found, after which nothing more comes."""

    def __init__(self, stop_strings: Sequence[str] = ()) -> None:
        self.stopped = False
        self._stop_strings = tuple(stop_strings)
        self._longest = max(map(len, stop_strings), default=0)
        self._held = ""

    def push(self, text: str) -> str:
        """The text that is safe to show now that `text` has come."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [(start + len(stop), start) for stop in self._stop_strings if (start := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        shown = len(text) - self._overlap(text)
        self._held = text[shown:]
        return text[:shown]

    def finish(self) -> str:
        """What was held back, if no stop string was found."""
        rest, self._held = self._held, ""
        return rest

    def _overlap(self, text: str) -> int:
        """How many of the last characters are the beginning of a stop string."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stop_strings):
                return size
        return 0


class TextStream:
    """The text of one request; `start` is the character with which the token that came last begins, or of which it is a part."""

    def __init__(self, tokenizer: Tokenizer, stop_strings: Sequence[str] = ()) -> None:
        self.start = 0
        self._tokenizer = tokenizer
        self._stops = StopStrings(stop_strings)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._decoded = 0  # characters, those that are held back included

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found, after which nothing more comes."""
        return self._stops.stopped

    def push(self, token: int) -> str:
        """The text that is safe to show now that `token` has come."""
        data = self._tokenizer.decode_bytes((token,), skip_special=True)
        text = self._decoder.decode(data[:1])
        begun = text + self._decoder.getstate()[0].decode("utf-8", "replace")  # the first byte is in its last character
        self.start = self._decoded + max(0, len(begun) - 1)
        text += self._decoder.decode(data[1:])
        self._decoded += len(text)
        return self._stops.push(text)

    def finish(self) -> str:
        """The rest of the text: what was held back, if no stop string was found."""
        return self._stops.push(self._decoder.decode(b"", final=True)) + self._stops.finish()
