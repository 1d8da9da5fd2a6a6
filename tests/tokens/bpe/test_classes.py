"""The table of character classes against both regular expression engines, for every code point."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import tiktoken
from tokenizers import Regex, pre_tokenizers

from ingot.tokens.bpe import classes as kinds
from ingot.tokens.bpe.classes import character_classes

CODES = np.concatenate([np.arange(0xD800), np.arange(0xE000, 0x110000)])
EVERY = CODES.astype("<u4").tobytes().decode("utf-32-le")
SETS = {
    r"[\p{Lu}\p{Lt}]": kinds.UPPER,
    r"\p{Ll}": kinds.LOWER,
    r"[\p{Lm}\p{Lo}]": kinds.LETTER,
    r"\p{M}": kinds.MARK,
    r"\p{N}": kinds.NUMBER,
    r"\s": kinds.BLANK | kinds.LINE_END,
    r"[\r\n]": kinds.LINE_END,
}


def ours(wanted: int) -> str:
    return "".join(map(chr, CODES[character_classes()[CODES] & wanted > 0]))


def runs(sets: list[int]) -> list[str]:
    """All characters in order, cut where one set ends and another begins."""
    kind = character_classes()[CODES]
    which = sum(((kind & wanted) > 0).astype(np.int64) << bit for bit, wanted in enumerate(sets))
    bounds = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(EVERY)]
    return [EVERY[start:stop] for start, stop in pairwise(bounds)]


def test_every_code_point_as_the_tokenizers_library_sees_it() -> None:
    together = {pattern: wanted for pattern, wanted in SETS.items() if pattern != r"[\r\n]"}
    cutter = pre_tokenizers.Split(Regex("|".join(f"{pattern}+" for pattern in together)), "isolated")
    found = [piece for piece, _ in cutter.pre_tokenize_str(EVERY)]
    assert found == runs(list(together.values()))


def test_every_code_point_as_tiktoken_sees_it() -> None:
    bytes_alone = {bytes([byte]): byte for byte in range(256)}
    for pattern, wanted in SETS.items():
        peer = tiktoken.Encoding("all", pat_str=pattern, mergeable_ranks=bytes_alone, special_tokens={})
        assert bytes(peer.encode_ordinary(EVERY)).decode() == ours(wanted), pattern


def test_every_number_that_digits_cuts_out() -> None:
    number = kinds.NUMBER | kinds.LATER_NUMBER
    found = [piece for piece, _ in pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str(EVERY)]
    expected = [
        piece for run in runs([number]) for piece in (run if character_classes()[ord(run[0])] & number else [run])
    ]
    assert found == expected
