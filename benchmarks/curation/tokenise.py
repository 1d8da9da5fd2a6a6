"""Encoding and tokenising to shards, beside the `tokenizers` library and tiktoken.

The tokenizer is one of 32,000 tokens that is trained here on a part of the corpus; tiktoken gets the same vocabulary and cuts.
`TOKENIZERS_PARALLELISM` is off: one core each. The fast encoder is measured on texts it has not seen, and with a warm cache.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from benchmarks.curation.measure import compare, note, rate, row
from ingot.data.text.texts import Texts
from ingot.tokens.bpe.alphabet import BYTE_OF_CHARACTER
from ingot.tokens.bpe.exact import exact_encoder
from ingot.tokens.config import TokenizeConfig, TokenizerConfig
from ingot.tokens.tokenize import loaded
from ingot.tokens.tokenize import run as run_stage
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer
from ingot.workspace.progress import Progress
from ingot.workspace.stage import StageFolder

GOAL = 25.0
PEER_BYTES = 4_000_000  # the peers are slow: ours and theirs are measured on this part of the corpus


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """Rows of the table: encoding, then documents to shards."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    texts = Texts.of(corpus.column("text"))
    rounds = 1 if quick else 3
    config = TokenizerConfig(vocabulary_size=8000 if quick else 32_000)
    tokenizer = train_tokenizer(_some(texts, 2_000_000 if quick else 8_000_000), config)
    tokenizer.encoder.encode(Texts.of(["compile"]))
    rows = _encoding(tokenizer, texts, rounds)
    with tempfile.TemporaryDirectory() as folder:
        rows.append(_to_shards(tokenizer, corpus, Path(folder), texts.bytes, rounds))
    return rows


def _encoding(tokenizer: Tokenizer, texts: Texts, rounds: int) -> list[dict[str, Any]]:
    """Ours and the libraries on the same texts: once with nothing remembered of them, then warm."""
    some = _some(texts, PEER_BYTES)
    sample = Texts.of(some)
    fresh, written = exact_encoder(tokenizer.backend), tokenizer.backend.to_str()
    expected = [one.ids for one in tokenizer.backend.encode_batch_fast(some, add_special_tokens=False)]
    if fresh.encode(sample).lists() != expected:
        raise AssertionError("the fast encoder and the library disagree")

    def unseen(make: Callable[[], Any], encode: Callable[[Any], Any]) -> float:
        """The best of first passes, each by an encoder that was just made."""
        return max(rate(partial(encode, made), sample.bytes, 1) for made in [make() for _ in range(rounds)])

    def library(backend: Any) -> Any:
        return backend.encode_batch_fast(some, add_special_tokens=False)

    def ours(encoder: Any) -> Any:
        return encoder.encode(sample)

    first = unseen(lambda: exact_encoder(tokenizer.backend), ours)
    warm = compare(partial(ours, fresh), partial(library, tokenizer.backend), sample.bytes, rounds)
    theirs = unseen(lambda: type(tokenizer.backend).from_str(written), library)
    rows = [
        row("encode, unseen texts", first, theirs, peer_name="tokenizers", goal=GOAL),
        row("encode, warm", *warm, peer_name="tokenizers", goal=GOAL),
    ]
    try:
        import tiktoken
    except ImportError:
        note("tiktoken is not installed: left out")
        return rows
    state = json.loads(written)
    special = set(tokenizer.special)
    ranks = {
        bytes(BYTE_OF_CHARACTER[character] for character in token): id
        for token, id in state["model"]["vocab"].items()
        if token not in special
    }
    pattern = state["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    peer = tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    if peer.encode_ordinary_batch(some, num_threads=1) != expected:
        raise AssertionError("tiktoken and the library disagree")
    both = compare(
        partial(ours, fresh), lambda: peer.encode_ordinary_batch(some, num_threads=1), sample.bytes, rounds
    )  # it remembers nothing: unseen or warm is the same to it
    return [*rows, row("encode, warm", *both, peer_name="tiktoken", goal=GOAL)]


def _to_shards(tokenizer: Tokenizer, corpus: pyarrow.Table, folder: Path, size: int, rounds: int) -> dict[str, Any]:
    """Parquet to shards with checksums, everything counted: start, reading, the shuffle, the writing."""
    tokenizer.save(folder / "tokenizer")
    (folder / "documents").mkdir()
    pyarrow.parquet.write_table(
        corpus.select(["id", "text"]),
        folder / "documents" / "part-00000.parquet",
        row_group_size=2000,
        compression="zstd",
    )
    inputs = {"documents": folder / "documents", "tokenizer": folder / "tokenizer"}
    config = TokenizeConfig(workers=1)
    stage = StageFolder(folder / "stage", seed=0, progress=Progress())

    def run() -> None:
        loaded.cache_clear()  # the tokenizer is loaded and its cache filled each time
        run_stage(config, inputs, stage)

    return row("tokenise to shards", rate(run, size, rounds), goal=GOAL)


def _some(texts: Texts, limit: int) -> list[str]:
    """Texts from all over the corpus, about `limit` bytes."""
    step = max(1, texts.bytes // limit)
    return [texts[index] for index in range(0, len(texts), step)]
