"""Tokenises texts for decon's n-grams: into words, or into the tokens of a vocabulary.

Cleaned text (words.py) is words with single spaces between them, and vocabularies such as cl100k never put two words
into one token: a space only begins a token. So the tokens of a text are the tokens of " word", one word after the
other, and each different word of a batch is encoded once. A vocabulary is checked for this when it is loaded.

Invariant: the tokens are those of the whole cleaned text with a space in front.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.data.contamination.words import PUNCTUATION, Words, words_of
from ingot.data.read.problem import Unreadable
from ingot.data.read.streams import whole
from ingot.data.text.hashing import first_equal
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError, IngotError
from ingot.workspace.packages import pip_install

TO_SPACE = str.maketrans(dict.fromkeys(PUNCTUATION, " "))

CONTRACTION = r"'(?i:[sdmt]|ll|ve|re)"
PATTERNS = {  # by the number of ranks: how the published vocabularies cut a text before they merge
    50256: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    50280: r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    100256: CONTRACTION
    + r"|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    199998: "|".join(
        (
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        )
    ),
}

Encode = Callable[[list[str]], list[list[int]]]  # " word" by " word" to tokens

CHECK = "how many 12345 of the naïve ½ ones cost 3 7 or 1000000 yen in 東京 and москва x² €5 nasa’s"


@dataclass(frozen=True)
class TokenTable:
    """The tokens of many texts, end to end; text d has offsets[d] … offsets[d + 1] - 1."""

    values: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    words: Words
    ends: NDArray[np.int64] | None = None  # word w has the tokens ends[w - 1] … ends[w] - 1; None: one token a word

    def word_of(self, token: int) -> int:
        """The word that a token belongs to."""
        return token if self.ends is None else int(np.searchsorted(self.ends, token, side="right"))


def tokens_of(texts: Texts, source: str) -> TokenTable:
    """The tokens of every text; `source` is `words` or the file of a vocabulary."""
    words = words_of(texts, "cleaned")
    if source == "words":
        return TokenTable(words.hashes, words.offsets, words)
    numbers, firsts = distinct(words.hashes)
    encoded = load_encoder(source)([f" {spelled(texts, words, first)}" for first in firsts.tolist()])
    counts = np.fromiter(map(len, encoded), np.int64, len(encoded))
    flat = np.fromiter((token for tokens in encoded for token in tokens), np.uint64, int(counts.sum()))
    begins = np.cumsum(counts) - counts
    lengths = counts[numbers]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    values = flat[np.repeat(begins[numbers] - (ends - lengths), lengths) + np.arange(total)]
    return TokenTable(values, np.concatenate([[0], ends])[words.offsets], words, ends)


def spelled(texts: Texts, words: Words, number: int) -> str:
    """A word as its cleaned characters."""
    text = int(np.searchsorted(words.offsets, number, side="right")) - 1
    is_last = number + 1 == words.offsets[text + 1]
    end = texts.offsets[text + 1] if is_last else words.starts[number + 1]
    raw = texts.data[words.starts[number] : end].tobytes().decode("utf-8")
    return raw.lower().translate(TO_SPACE).replace("\0", " ").split()[0]


def distinct(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each hash the number of its value, and for each value the index where it is first."""
    first = first_equal(hashes, hashes)
    is_first = first == np.arange(len(hashes))
    return (np.cumsum(is_first) - 1)[first], np.flatnonzero(is_first)


@lru_cache(maxsize=2)
def load_encoder(path: str) -> Encode:
    """The encoder of a vocabulary file; refuses one that joins words."""
    try:
        with Path(path).open("rb") as file:
            raw = whole(file, path)
    except Unreadable as error:
        raise DataError(f"no vocabulary: {error}", place=f"decon: tokens: {path}", fix="repair it") from None
    encode = _tokenizer_json(raw, path) if raw.lstrip().startswith(b"{") else _tiktoken_ranks(raw, path)
    if encode([f" {CHECK}"])[0] != [
        token for tokens in encode([f" {word}" for word in CHECK.split()]) for token in tokens
    ]:
        raise DataError(
            "this vocabulary has tokens that reach over a space",
            place=f"decon: tokens: {path}",
            fix="use one that cuts a text before each space (GPT-2, cl100k, o200k, Llama 3, Qwen), or `words`",
        )
    return encode


def _tokenizer_json(raw: bytes, path: str) -> Encode:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(raw.decode("utf-8"))
    except Exception as error:  # noqa: BLE001  (tokenizers raises the base class)
        raise DataError(f"no tokenizer: {error}", place=path, fix="give a tokenizer.json or a tiktoken file") from None
    return lambda words: [item.ids for item in tokenizer.encode_batch_fast(words, add_special_tokens=False)]


def _tiktoken_ranks(raw: bytes, path: str) -> Encode:
    try:
        import tiktoken
    except ImportError:
        raise IngotError(
            "tiktoken is not installed", place=f"decon: tokens: {path}", fix=pip_install("tiktoken")
        ) from None
    try:
        lines = [line.partition(b" ") for line in raw.splitlines()]
        ranks = {base64.b64decode(token): int(rank) for token, _, rank in lines}
        pattern = PATTERNS[len(ranks)]
    except (ValueError, KeyError) as error:
        raise DataError(
            f"not the ranks of a vocabulary that is known: {error}",
            place=path,
            fix=f"give a file of tiktoken with {', '.join(map(str, PATTERNS))} ranks, or a tokenizer.json",
        ) from None
    encoding = tiktoken.Encoding(Path(path).name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda words: list(map(encoding.encode_ordinary, words))


def is_space(source: str) -> Callable[[NDArray[np.uint64]], NDArray[np.bool_]]:
    """Which tokens are nothing but space: they do not count when the length of an eval is measured."""
    if source == "words":
        return lambda values: np.zeros(len(values), bool)
    lone = [tokens[0] for tokens in load_encoder(source)([" "]) if len(tokens) == 1]
    return lambda values: np.isin(values, np.array(lone, np.uint64))
