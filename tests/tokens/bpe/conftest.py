"""Real vocabularies, and tiktoken with them; texts with everything awkward in them."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import tiktoken
from hypothesis import strategies as st

from ingot.tokens.bpe.rules import TIKTOKEN
from ingot.tokens.tokenizer import TOKENIZER_FILE, Tokenizer

AWKWARD = [
    *"abzAZ09  \n\r\t'/.!sSTtlLvVeErRdDmM-",
    "ſ", "é", "É", "ǅ", "ʰ", "中", "ك", "\u0301", "\u094d", "½", "٣", "\u00a0", "\u2028", "\u3000", "😀", "\u0085",
    "\u1680", "Ⅷ", "𝟘", "\U00011de5", "\u200d", "ß", "\x00", "\x1c", "\U00050000", "\U0010ffff", "<|endoftext|>",
    "  \n  ", "1234",
]  # fmt: skip

# Words are cut eight bytes at a time: lengths on both sides of that, and all that may stand around a word.
WORDS = [
    "a", "Zebra", "sevenab", "eightabc", "nineabcde", "sixteenabcdefghi",
    " ", " ", "  ", "\n", "-", "'", "'s", "7", "é", "\u0301", "@", "[",
]  # fmt: skip

any_text = st.one_of(
    st.text(),
    st.lists(st.sampled_from(AWKWARD), max_size=30).map("".join),
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
)


@pytest.fixture(scope="session")
def ranks(shared_data: Path) -> Callable[[str], dict[bytes, int]]:
    """The tokens of a tiktoken encoding by rank."""

    @cache
    def read(name: str) -> dict[bytes, int]:
        with gzip.open(shared_data / "tokenizers" / f"{name}.tiktoken.gz") as lines:
            return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}

    return read


@pytest.fixture(scope="session")
def peer(ranks: Callable[[str], dict[bytes, int]]) -> Callable[[str], tiktoken.Encoding]:
    """tiktoken itself with its own expression."""
    return lambda name: tiktoken.Encoding(
        name, pat_str=TIKTOKEN[name][0], mergeable_ranks=ranks(name), special_tokens={}
    )


@pytest.fixture(scope="session")
def smollm2(shared_data: Path) -> Tokenizer:
    content = gzip.decompress((shared_data / "tokenizers" / "smollm2_tokenizer.json.gz").read_bytes())
    return Tokenizer.from_files({TOKENIZER_FILE: content}, "smollm2")


@pytest.fixture(scope="session")
def real_texts(shared_data: Path) -> list[str]:
    """The Declaration of Human Rights in 529 languages (every third), and some chapters, pages and Python proposals."""
    found = []
    for name, step in (
        ("udhr/udhr", 3),
        ("standard_ebooks/books", 100),
        ("openstax/modules", 150),
        ("peps/peps_half", 60),
    ):
        with gzip.open(shared_data / f"{name}.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
            found += [json.loads(line)["text"] for number, line in enumerate(lines) if number % step == 0]
    return found
