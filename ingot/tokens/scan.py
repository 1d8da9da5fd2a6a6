"""Splits sampled tokens into text and marks, token by token.

A special token is a mark by its id. A mark without a token of its own is looked for in the text, which is held back while it
may be the beginning of one; which marks count is up to the part of the turn that is being read. Bytes are held back until their
character is complete.

Invariant: however a text is cut into tokens, the events, neighbouring texts joined, are the same.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from ingot.tokens.tokenizer import Tokenizer

NO_TEXT = b"\xff"  # stands for an id that the tokenizer does not have, as a padded vocabulary may give: no valid text


@dataclass(frozen=True)
class Text:
    """Some text of the turn."""

    text: str


@dataclass(frozen=True)
class Mark:
    """A special token, or a mark that is spelt in text: then `length` is how many characters it took."""

    name: str
    length: int = 0


@dataclass(frozen=True)
class Broken:
    """The text before this was not valid UTF-8; what was wrong is U+FFFD in it."""


Event = Text | Mark | Broken


@lru_cache(maxsize=256)
def _pattern_of(spelt: tuple[str, ...], any_sign: bool) -> re.Pattern[str]:
    """Finds any of these marks, the longest first; made once, because RL reads hundreds of turns a second."""
    longest_first = map(re.escape, sorted(spelt, key=len, reverse=True))
    return re.compile("|".join([*longest_first, *([r"\S"] if any_sign else [])]) or "(?!)")


class Scanner:
    """One turn. Who reads the events says after each of them which marks are looked for in the text that follows (`look_for`).

    `in_marks` are special tokens that count as text, because a longer mark has them inside.
    """

    def __init__(self, tokenizer: Tokenizer, in_marks: frozenset[str] = frozenset()) -> None:
        self._tokenizer = tokenizer
        names = tokenizer.name_of_special
        self._names = {id: name for id, name in names.items() if name not in in_marks} if in_marks else names
        self._spelt: tuple[str, ...] = ()
        self._pattern = _pattern_of((), False)
        self._longest = 1
        self._any = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._run = bytearray()  # since the last special token
        self._held = ""
        self.decoded = 0  # characters of text, those that are held back included
        self.start = 0  # the character with which the token that came last begins, or of which it is a part

    def look_for(self, marks: Sequence[str], any_sign: bool = False) -> None:
        """Find these marks from here on, those that are no special tokens. `any_sign`: any character but a blank is one too."""
        self._spelt = tuple(mark for mark in marks if mark not in self._tokenizer.special)
        self._any = any_sign
        self._pattern = _pattern_of(self._spelt, any_sign)
        self._longest = max(map(len, self._spelt), default=1)

    def push(self, token: int) -> Iterator[Event]:
        """The events that `token` completes."""
        if token in self._names:
            yield from self.finish()
            self.start = self.decoded
            yield Mark(self._names[token])
            return
        data = self._tokenizer.bytes_of_id.get(token, NO_TEXT)
        self._run += data
        first = self._decoder.decode(data[:1])
        begun = first + self._decoder.getstate()[0].decode(
            "utf-8", "replace"
        )  # the first byte is in its last character
        self.start = self.decoded + max(0, len(begun) - 1)
        yield from self._take(first + self._decoder.decode(data[1:]), final=False)

    def push_all(self, tokens: Sequence[int]) -> Iterator[Event]:
        """The events of many tokens at once: the texts between special tokens are not cut at every token."""
        for special, run in groupby(tokens, self._names.__contains__):
            if special:
                for token in run:
                    yield from self.push(token)
            else:
                spelled = self._tokenizer.bytes_of_id
                data = b"".join([spelled.get(token, NO_TEXT) for token in run])
                self._run += data
                yield from self._take(self._decoder.decode(data), final=False)

    def finish(self) -> Iterator[Event]:
        """What was held back, at the end of the turn or before a special token."""
        yield from self._take(self._decoder.decode(b"", final=True), final=True)
        self._decoder.reset()
        try:
            self._run.decode("utf-8")
        except UnicodeDecodeError:
            yield Broken()
        self._run.clear()

    def _take(self, text: str, final: bool) -> Iterator[Event]:
        self.decoded += len(text)
        text, position = self._held + text, 0
        while found := self._pattern.search(text, position):
            if found.start() > position:  # what reads it may look for other marks then
                start, position = position, found.start()
                yield Text(text[start:position])
            elif self._any and not final and self._is_beginning(text[position:]):
                break
            else:
                position = found.end()
                yield Mark(found[0], len(found[0]))
        rest = text[position:]
        kept = 0 if final else self._overlap(rest)
        self._held = rest[len(rest) - kept :]
        if len(rest) > kept:
            yield Text(rest[: len(rest) - kept])

    def _is_beginning(self, text: str) -> bool:
        """Whether a mark that is spelt in text may begin with all of this."""
        return any(mark.startswith(text) and mark != text for mark in self._spelt)

    def _overlap(self, text: str) -> int:
        """How many of the last characters are the beginning of a mark that is spelt in text."""
        for size in range(min(self._longest - 1, len(text)), 0, -1):
            if self._is_beginning(text[-size:]):
                return size
        return 0
