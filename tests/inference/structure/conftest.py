"""Vocabularies for structured output: single bytes, a small one by hand, and two real ones."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from ingot.tokens.bpe.alphabet import BYTE_OF_CHARACTER
from ingot.tokens.tokenizer import Tokenizer

CHARACTER_OF_BYTE = {byte: character for character, byte in BYTE_OF_CHARACTER.items()}


def byte_level(pieces: list[bytes], special: list[str] | None = None) -> Tokenizer:
    """A tokenizer whose token i is pieces[i]; special tokens follow."""
    vocabulary = {"".join(CHARACTER_OF_BYTE[byte] for byte in piece): id for id, piece in enumerate(pieces)}
    backend = Backend(models.BPE(vocab=vocabulary, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(special or ["<|endoftext|>"])
    return Tokenizer(backend, None)


@pytest.fixture(scope="session")
def single_bytes() -> Tokenizer:
    """256 tokens: token i is the byte i."""
    return byte_level([bytes([byte]) for byte in range(256)])


@pytest.fixture(scope="session")
def small() -> Tokenizer:
    """Single bytes and longer tokens that cross every border of JSON: quotes, braces, halves of characters."""
    longer = ['"}', "]]", '","', '":', '{"', "12", "1.5", "0.0", "true", "fal", "null", '"a"', '\\"', "\\u00", "\\n"]
    longer += ["ab", "abc", "é日", "日本", '":1,', "2024", "-0", "e+", 'ab"}']
    pieces = [bytes([byte]) for byte in range(256)] + [text.encode() for text in longer]
    pieces += [b", ", b": ", b' "', b"\xe6\x97", b"\xa5\xe6", b'\x9c\xac"', b'": "', b'", "', b" " * 7]
    return byte_level(pieces, ["<|endoftext|>", "<a>"])


@pytest.fixture(scope="session")
def smollm2(shared_data: Path) -> Tokenizer:
    """SmolLM2's tokenizer, 49,152 tokens; it lacks some bytes."""
    return Tokenizer.from_files(
        {"tokenizer.json": gzip.decompress((shared_data / "tokenizers/smollm2_tokenizer.json.gz").read_bytes())},
        "smollm2",
    )


@pytest.fixture(scope="session")
def o200k(shared_data: Path) -> Tokenizer:
    """The tokens of o200k (GPT-4o, gpt-oss), 199,998 of them, with which nothing here encodes."""
    lines = gzip.decompress((shared_data / "tokenizers/o200k_base.tiktoken.gz").read_bytes()).splitlines()
    ranked = {int(rank): base64.b64decode(piece) for piece, rank in (line.split() for line in lines)}
    return byte_level([ranked[rank] for rank in range(len(ranked))])


@pytest.fixture(scope="session")
def whole_characters() -> Tokenizer:
    """A vocabulary of whole characters, as sentencepiece without byte tokens: é and 日 are tokens, their bytes are not."""
    characters = [chr(code) for code in range(32, 127)] + ["é", "日", "née", "日é"]
    state = {"model": {"type": "WordLevel", "vocab": {c: i for i, c in enumerate(characters)}, "unk_token": " "}}
    return Tokenizer(Backend.from_str(json.dumps({"version": "1.0", "added_tokens": [], **state})), None)
