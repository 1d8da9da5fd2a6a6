"""What one model wrote, in the tokens of another: the bytes encoded anew, special tokens by what they mean.

    end of a turn              the other template's end of a turn: of an answer, of a call
    end of a text              the other's
    <think>, <tool_call> …     the other's tags, special tokens or plain text on either side; plain text if it has none
    any other special token    the special token of the same name

Whatever the other tokenizer cannot spell (a special token that it does not know, a byte without a token) ends the comparison:
what follows could not be read in its context. Bytes that are no UTF-8 are spelt byte by byte.

Where only one of the two prompts has opened a trace, the other side is brought into it: by the tag as context, or by leaving
out the tag that the model wrote itself. Blanks around tags are bytes like any others: the student learns the teacher's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingot.tokens.alignment import TokenGroup, align, byte_ends
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError


@dataclass(frozen=True)
class Respelt:
    """Tokens of the other model, and which of them spell what of the given ones."""

    tokens: list[int]
    groups: list[TokenGroup]


class Respeller:
    """Spells answers of the model with the format `chat` in tokens of the model with the format `other`."""

    def __init__(self, chat: ChatFormat, other: ChatFormat) -> None:
        if chat.syntax.channels != other.syntax.channels:
            raise ArtifactError(
                "only one of the two chat templates writes channels (harmony), so that answers cannot be compared",
                fix="use models that both write channels, or neither: `ingot model template` gives a model another template",
            )
        self.chat, self.other = chat, other
        self.special, self.spelt = _meanings(chat, other)
        self._spelt = re.compile(b"|".join(map(re.escape, self.spelt)) or b"(?!)")
        self._bytes = {data[0]: id for data, id in _by_bytes(other.tokenizer).items() if len(data) == 1}

    def respell(self, tokens: Sequence[int], opened: bool = False, other_opened: bool = False) -> Respelt:
        """The answer `tokens` in the other tokens; `opened`: the prompt of a side ends inside a trace."""
        spelt = list[int]()
        skipped = 0
        if opened != other_opened:
            start, end = self.chat.syntax.think or self.other.syntax.think or ("", "")
            if opened:
                spelt = self._tag(start)
            elif self._data(tokens).startswith(start.encode()):
                cuts = [0, *byte_ends(self.chat.tokenizer, tokens)]
                if len(start.encode()) not in cuts:
                    return Respelt([], [])
                skipped = cuts.index(len(start.encode()))
            else:
                spelt = self._tag(end)
        written, ends = list[int](), list[int]()
        for more, more_ends in self._pieces(tokens[skipped:]):
            written += more
            ends += more_ends
        found = align(byte_ends(self.chat.tokenizer, tokens[skipped:]), ends)
        return Respelt(spelt + written, [group.moved(skipped, len(spelt)) for group in found])

    def shared(self) -> list[tuple[int, int]]:
        """Pairs of ids, one of each vocabulary, that mean the same; no id is in two of them.

        Ordinary tokens are paired by their bytes, whatever letters their tokenizers write for these.
        """
        special, others = set(self.other.tokenizer.special.values()), dict[int, int]()
        for id in (
            *self.chat.turn_ends,
            *self.special,
        ):  # an end of turns before others that mean the same end over there
            if len(self.special[id]) == 1 and self.special[id][0] in special:
                others.setdefault(self.special[id][0], id)
        pairs = [(id, other) for other, id in others.items()]
        there = _by_bytes(self.other.tokenizer)
        return pairs + [(id, there[data]) for data, id in _by_bytes(self.chat.tokenizer).items() if data in there]

    def _data(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.chat.tokenizer.bytes_of_id.get(token, b"") for token in tokens)

    def _tag(self, name: str) -> list[int]:
        return _spell_tag(self.other.tokenizer, name)

    def _pieces(self, tokens: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """The other tokens, piece by piece, with their ends in bytes of `tokens`; until something cannot be spelt."""
        tokenizer, special = self.chat.tokenizer, set(self.chat.tokenizer.special.values())
        start, run = 0, b""
        for token in [*tokens, None]:
            if token is not None and token not in special:
                run += tokenizer.bytes_of_id.get(token, b"")
                continue
            for data, mark in self._split(run):
                found = self._encode(data) if mark is None else (mark, _at_the_end(mark, len(data)))
                yield found[0], [start + end for end in found[1]]
                start += len(data)
                if not found[1] or found[1][-1] < len(data):
                    return
            run = b""
            if token is not None:
                width = len(tokenizer.bytes_of_id[token])
                if token not in self.special:
                    return
                meaning = self.special[token]
                yield meaning, [start + end for end in _at_the_end(meaning, width)]
                start += width

    def _split(self, run: bytes) -> Iterator[tuple[bytes, list[int] | None]]:
        """Text, and tags that are spelt in it, with what these are over there."""
        position = 0
        for found in self._spelt.finditer(run):
            if found.start() > position:
                yield run[position : found.start()], None
            yield found[0], self.spelt[found[0]]
            position = found.end()
        if position < len(run):
            yield run[position:], None

    def _encode(self, data: bytes) -> tuple[list[int], list[int]]:
        """The other tokens of some bytes, and their ends; fewer bytes than given where the rest cannot be spelt."""
        tokens, ends, start = list[int](), list[int](), 0
        while start < len(data):
            try:
                text, wrong = data[start:].decode("utf-8"), b""
            except UnicodeDecodeError as error:
                text, wrong = data[start : start + error.start].decode("utf-8"), data[start:][error.start : error.end]
            found = self.other.tokenizer.encode(text) if text else []
            bounds = byte_ends(self.other.tokenizer, found)
            length = len(text.encode())
            read = self.other.tokenizer.decode_bytes(found)
            if read == b" " + text.encode():  # some tokenizers put a blank before every text
                bounds = [end - 1 for end in bounds]
            elif read != text.encode():
                return tokens, ends
            tokens += found
            ends += [start + end for end in bounds]
            start += length
            for byte in wrong:
                if byte not in self._bytes:
                    return tokens, ends
                start += 1
                tokens.append(self._bytes[byte])
                ends.append(start)
        return tokens, ends


def _meanings(chat: ChatFormat, other: ChatFormat) -> tuple[dict[int, list[int]], dict[bytes, list[int]]]:
    """The other's tokens of each special token; and of each tag that is plain text here and a special token there."""
    own, there = chat.tokenizer, other.tokenizer
    special = {id: [there.special[name]] for name, id in own.special.items() if name in there.special}
    spelt = dict[bytes, list[int]]()
    for mine, theirs in ((chat.syntax.think, other.syntax.think), (chat.syntax.call, other.syntax.call)):
        for name, meant in () if mine is None else zip(mine, theirs or mine, strict=True):
            if name in own.special:
                special[own.special[name]] = _spell_tag(there, meant)
            elif meant in there.special or meant != name:
                spelt[name.encode()] = _spell_tag(there, meant)
    special.setdefault(own.end_of_text, [there.end_of_text])
    for place, end in reversed(list(enumerate(chat.turn_ends))):
        special[end] = [other.turn_ends[min(place, len(other.turn_ends) - 1)]]
    return special, spelt


def _spell_tag(tokenizer: Tokenizer, name: str) -> list[int]:
    return [tokenizer.special[name]] if name in tokenizer.special else tokenizer.encode(name)


def _at_the_end(tokens: Sequence[int], width: int) -> list[int]:
    """Widths of tokens that only together spell something: the last one has all of it, the others none."""
    return [0] * (len(tokens) - 1) + [width]


def _by_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """Ordinary tokens by what they spell; of several that spell the same, the first."""
    special, found = set(tokenizer.special.values()), dict[bytes, int]()
    for id, data in tokenizer.bytes_of_id.items():
        if data and id not in special:
            found.setdefault(data, id)
    return found
