"""Deduplication end to end: documents in Parquet shards, through files, to annotation files.

MinHash is compared where peers do the same work, on the same sample, with 14 x 8 permutations of shingles of five words,
in this process: signatures with datasketch (and rensa where it is installed), which are handed words cut by a plain regular
expression; signatures, buckets and clusters, not verified, with datatrove, whose words are cut at white space (spaCy's
would be slower still) and hashed by xxhash (FineWeb's sha1 is slower). Both normalise the text as ours does.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from benchmarks.curation.measure import compare, note, rate, row, sample_of
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.step import AcrossDocuments, Step
from ingot.data.steps.exact_dedup import ExactDedupStep
from ingot.data.steps.near_dedup import NearDedupStep
from ingot.data.steps.near_dedup.minhash import shingles_of, signatures_of
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


def end_to_end(step: Step, shards: list[Shard]) -> Callable[[], None]:
    """One whole run of a step, in a folder of its own."""

    def run() -> None:
        assert isinstance(step, AcrossDocuments)
        with tempfile.TemporaryDirectory() as folder:
            step.annotate(shards, Work(Path(folder)))

    return run


def word_shingles(text: str) -> set[str]:
    """Shingles of five words, as the peers take them."""
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))}


def our_signatures(texts: list[str]) -> None:
    step = NearDedupStep()
    shingles, offsets = shingles_of(Texts.of(texts), step)
    signatures_of(shingles, offsets, PERMUTATIONS)


def datasketch_signatures(texts: list[str]) -> None:
    import xxhash
    from datasketch import MinHash

    shingles = ([shingle.encode() for shingle in word_shingles(text)] for text in texts)
    for _ in MinHash.generator(shingles, num_perm=PERMUTATIONS, seed=1, hashfunc=xxhash.xxh32_intdigest):
        pass


def rensa_signatures(texts: list[str]) -> None:
    from rensa import RMinHash

    for text in texts:
        RMinHash(num_perm=PERMUTATIONS, seed=1).update(list(word_shingles(text)))


SIGNATURES: dict[str, Callable[[list[str]], None]] = {"datasketch": datasketch_signatures, "rensa": rensa_signatures}


def datatrove_clusters(texts: list[str]) -> None:
    """The three stages of datatrove's MinHash, as one worker runs them."""
    import xxhash
    from datatrove.data import Document
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.utils.hashing import HashConfig
    from datatrove.utils.word_tokenizers import WhitespaceTokenizer

    class Blanks(WhitespaceTokenizer):  # type: ignore[misc]
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

    config = MinhashConfig(hash_config=HashConfig(precision=64, hash_fc="xxhash"), num_buckets=14, hashes_per_bucket=8)
    documents = [Document(text=text, id=str(number)) for number, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        signatures, buckets, removed = (f"{folder}/{name}" for name in ("signatures", "buckets", "removed"))
        first = MinhashDedupSignature(signatures, config, language=Blanks())
        first._hash_func = lambda text: xxhash.xxh64_intdigest(text.encode())  # its own call wants an older xxhash
        first.run(iter(documents), 0, 1)
        for bucket in range(config.num_buckets):
            MinhashDedupBuckets(signatures, buckets, config=config).run(None, bucket, config.num_buckets)
        MinhashDedupCluster(buckets, removed, config=config).run(None, 0, 1)


def minhash_rows(corpus: pyarrow.Table, quick: bool, rounds: int) -> list[dict[str, Any]]:
    """MinHash beside its peers."""
    few, size = sample_of(corpus, quick)
    texts = few.column("text").to_pylist()
    found = []
    for name, peer in SIGNATURES.items():
        if find_spec(name) is None:
            note(f"{name} is not installed: left out")
            continue
        both = compare(partial(our_signatures, texts), partial(peer, texts), size, rounds)
        found.append(row("MinHash 14 x 8: signatures, sample", *both, peer_name=name))
    if find_spec("datatrove") is None:
        note("datatrove is not installed: left out")
        return found
    with tempfile.TemporaryDirectory() as folder:
        ours = end_to_end(NearDedupStep(min_jaccard=None), shards_of(few, Path(folder)))
        both = compare(ours, partial(datatrove_clusters, texts), size, rounds)
        found.append(row("MinHash 14 x 8: clusters, not verified, sample", *both, peer_name="datatrove"))
    return found


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
        for name, step, goal in cases:
            run = end_to_end(step, shards)
            run()  # compiles
            found.append(row(name, rate(run, size, rounds), goal=goal))
    return [*found, *minhash_rows(corpus, quick, rounds)]
