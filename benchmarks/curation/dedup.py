"""Deduplication end to end: documents in Parquet shards, through files, to annotation files.

Peers compute only what their library has: datasketch and rensa signatures of the same shingles of words; datatrove the
signatures of its MinHash step on words split at white space (spaCy's would be slower still). They see a part of the
corpus, because they are slow.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from benchmarks.curation.measure import rate, row
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.step import AcrossDocuments, Step
from ingot.data.steps.exact_dedup import ExactDedupStep
from ingot.data.steps.near_dedup import NearDedupStep
from ingot.data.text.texts import Texts

SHARD_BYTES = 32_000_000
PERMUTATIONS = 14 * 8


def shards_of(corpus: pyarrow.Table, folder: Path) -> list[Shard]:
    """The corpus as shards on disk, cut by bytes."""
    texts = Texts.of(corpus.column("text"))
    shards: list[Shard] = []
    first = 0
    for last in range(1, len(corpus) + 1):
        size = int(texts.offsets[last] - texts.offsets[first])
        if size >= SHARD_BYTES or last == len(corpus):
            path = folder / f"{len(shards):05d}.parquet"
            part = corpus.slice(first, last - first)
            pyarrow.parquet.write_table(part, path, compression="lz4", use_dictionary=False)
            shards.append(Shard(len(shards), f"shard {len(shards)}", path, len(part), size))
            first = last
    return shards


def end_to_end(config: Step, shards: list[Shard]) -> Callable[[], None]:
    """One whole run of a step, in a folder of its own."""

    def run() -> None:
        step = config
        assert isinstance(step, AcrossDocuments)
        with tempfile.TemporaryDirectory() as folder:
            step.annotate(shards, Work(Path(folder)))

    return run


def word_shingles(text: str) -> set[str]:
    """Shingles of five words, as the peers take them."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


def datasketch_signatures(texts: list[str]) -> None:
    from datasketch import MinHash

    for text in texts:
        MinHash(num_perm=PERMUTATIONS, seed=1).update_batch([shingle.encode() for shingle in word_shingles(text)])


def rensa_signatures(texts: list[str]) -> None:
    from rensa import RMinHash

    for text in texts:
        RMinHash(num_perm=PERMUTATIONS, seed=1).update(list(word_shingles(text)))


def datatrove_signatures(texts: list[str]) -> None:
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.word_tokenizers import WhitespaceTokenizer

    class Blanks(WhitespaceTokenizer):  # type: ignore[misc]
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

    with tempfile.TemporaryDirectory() as folder:
        config = MinhashConfig(hash_config=HashConfig(precision=64, hash_fc="sha1"))  # as FineWeb
        step = MinhashDedupSignature(folder, config, language=Blanks())
        for text in texts:
            shingles = step.get_shingles(text)
            if shingles.size:
                step.get_signature(shingles)


PEERS: dict[str, Callable[[list[str]], None]] = {
    "datasketch": datasketch_signatures,
    "rensa": rensa_signatures,
    "datatrove": datatrove_signatures,
}


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """Exact deduplication by document, paragraph and line; MinHash with its peers."""
    size = Texts.of(corpus.column("text")).bytes
    rounds = 2 if quick else 3
    cases: list[tuple[str, Step, float]] = [
        ("exact dedup, documents", ExactDedupStep(), 100),
        ("exact dedup, paragraphs", ExactDedupStep(scope="paragraph"), 100),
        ("exact dedup, lines", ExactDedupStep(scope="line"), 100),
        ("MinHash 14 x 8, verified", NearDedupStep(), 30),
        ("MinHash 26 x 11, verified", NearDedupStep(bands=26, rows=11), 30),
    ]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        shards = shards_of(corpus, Path(folder))
        for name, config, goal in cases:
            run = end_to_end(config, shards)
            run()  # compiles
            found.append(row(name, rate(run, size, rounds), goal=goal))
    ours = next(each["ours"] for each in found if each["case"].startswith("MinHash 14"))
    offsets = Texts.of(corpus.column("text")).offsets
    part = int(np.searchsorted(offsets, offsets[0] + (500_000 if quick else 3_000_000)))
    texts = corpus.column("text").slice(0, part).to_pylist()
    peer_bytes = sum(len(text.encode()) for text in texts)
    for name, peer in PEERS.items():
        if find_spec(name) is None:
            print(f"  {name} is not installed: left out")
            continue
        speed = rate(partial(peer, texts), peer_bytes, 1)
        found.append(row("MinHash 14 x 8 (peer: signatures only)", ours, speed, peer_name=name))
    return found
