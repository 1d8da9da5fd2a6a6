"""Stage `tokenizer`: train a byte-level BPE on curated documents and measure it on held-out ones.

Byte-pair encoding (Sennrich et al. 2016) over bytes (GPT-2): start from the 256 bytes, merge the most frequent adjacent
pair until the vocabulary is full. Merges never cross the cuts of `split_pattern` (bpe/rules.py): words keep at most one
character before them, numbers are cut by the `digits` rule, runs of blanks stay together for code.

Invariants: special tokens have the ids 0..15 of `SPECIAL_TOKENS`, whatever is trained on; the same documents and config give
the same bytes on disk, with any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from ingot.tokens.bpe.rules import split_pattern
from ingot.tokens.config import Balance, TokenizerConfig
from ingot.tokens.documents import HELD_OUT, columns_of, held_out, id_hashes, read_columns
from ingot.tokens.fertility import measure
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer
from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.files import atomic_folder, write_json
from ingot.workspace.stage import StageFolder

STATISTICS_FILE = "statistics.json"
MEASURED_BYTES = 16_000_000  # of held-out text at most


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig | None = None) -> Tokenizer:
    """Train on `texts`; the chat template is the one that comes with Ingot."""
    config = config or TokenizerConfig()
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split_pattern(config.split, config.digits)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocabulary_size,
        min_frequency=config.minimum_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=config.longest_token + 1,  # the library makes tokens shorter than this, never as long
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend, template_text())


@dataclass(frozen=True)
class Census:
    """A few numbers about every document, from which those to train on are chosen."""

    held: NDArray[np.bool_]
    hashes: NDArray[np.uint64]  # of the ids: documents are taken in their order
    sizes: NDArray[np.int64]
    groups: NDArray[np.int64]  # a number for each value of the column of `balance`
    names: list[str]


def take_census(documents: Path, config: TokenizerConfig) -> Census:
    """Look at all documents once."""
    import pyarrow
    import pyarrow.compute

    held, _ = held_out(documents, config.held_out_share)
    column = None if config.balance is None else config.balance.column
    names: dict[str, int] = {}
    found: list[tuple[NDArray[Any], ...]] = []
    for batch in read_columns(documents, ["id", "text", *([] if column is None else [column])]):
        ids = batch.column("id").to_pylist()
        values = [""] * len(ids) if column is None else batch.column(column).cast(pyarrow.string()).to_pylist()
        found.append(
            (
                held.mask(id_hashes(ids, HELD_OUT)),
                id_hashes(ids, "tokenizer"),
                np.asarray(pyarrow.compute.binary_length(batch.column("text")), np.int64),
                np.array([names.setdefault(str(value), len(names)) for value in values], np.int64),
            )
        )
    masks, hashes, sizes, groups = (np.concatenate(column) for column in zip(*found, strict=True))
    return Census(masks, hashes, sizes, groups, list(names))


def choose(census: Census, limit: int, balance: Balance | None) -> NDArray[np.int64]:
    """The documents to train on, ascending: in each group, by hash of id, until its share of `limit` bytes is reached."""
    weights = dict.fromkeys(census.names, 1.0)
    if balance is not None and balance.shares:
        weights = {name: balance.shares.get(name, 0.0) for name in census.names}
    total = sum(weights.values())
    chosen = []
    for group, name in enumerate(census.names):
        rows = np.flatnonzero((census.groups == group) & ~census.held)
        rows = rows[np.argsort(census.hashes[rows], kind="stable")]
        before = np.cumsum(census.sizes[rows]) - census.sizes[rows]
        chosen.append(rows[before < (limit * weights[name] / total if total else 0)])
    return np.sort(np.concatenate([np.zeros(0, np.int64), *chosen]))


def texts_at(documents: Path, rows: NDArray[np.int64], columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The text and the columns of these documents (ascending), one at a time."""
    import pyarrow

    done = 0
    for batch in read_columns(documents, ["text", *columns]):
        first, last = np.searchsorted(rows, [done, done + batch.num_rows])
        part = batch.take(pyarrow.array(rows[first:last] - done))
        done += batch.num_rows
        yield from zip(
            part.column("text").to_pylist(), *(map(str, part.column(name).to_pylist()) for name in columns), strict=True
        )


def run(config: TokenizerConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Train, measure, write tokenizer/."""
    documents = inputs["documents"]
    columns = _columns_to_measure(config, documents)
    census = take_census(documents, config)
    rows = choose(census, config.training_bytes, config.balance)
    size = int(census.sizes[rows].sum())
    if size == 0:
        raise DataError("the documents hold no text", place=str(documents), fix="look at what the curate stage removed")
    folder.stop.check()
    folder.progress.say(f"training on {len(rows):,} documents, {size / 1e6:.1f} MB")
    tokenizer = train_tokenizer((text for (text,) in texts_at(documents, rows, ())), config)
    folder.stop.check()
    statistics = {
        "vocabulary_size": tokenizer.vocabulary_size,
        "training_documents": len(rows),
        "training_bytes": size,
        "held_out": _measure_held_out(tokenizer, documents, census, columns),
    }
    if config.balance is not None:
        shares = np.bincount(census.groups[rows], census.sizes[rows], len(census.names)) / size
        statistics["training_shares"] = dict(zip(census.names, shares.round(4).tolist(), strict=True))
    with atomic_folder(folder.artifact("tokenizer")) as temporary:
        tokenizer.save(temporary)
        write_json(temporary / STATISTICS_FILE, statistics)
    if tokenizer.vocabulary_size < config.vocabulary_size:
        folder.progress.say(
            f"the text gave only {tokenizer.vocabulary_size:,} of {config.vocabulary_size:,} tokens: no pair occurs "
            f"{config.minimum_frequency} times any more"
        )
    return _summary(statistics)


def _columns_to_measure(config: TokenizerConfig, documents: Path) -> list[str]:
    """The columns of `measure_by`; an error if they or that of `balance` are not there."""
    present = columns_of(documents)
    wanted = [name for name in ("kind",) if name in present] if config.measure_by is None else config.measure_by
    for name in [*wanted, *([] if config.balance is None else [config.balance.column])]:
        if name not in present:
            raise ArtifactError(
                f"no column {name!r}",
                place=str(documents),
                fix=f"name others in measure_by and balance: the documents have {', '.join(sorted(present))}",
            )
    return wanted


def _measure_held_out(
    tokenizer: Tokenizer, documents: Path, census: Census, columns: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Statistics of all held-out documents and of each value of the columns (`prose`, `language=de`)."""
    rows = np.flatnonzero(census.held)
    rows = rows[np.argsort(census.hashes[rows], kind="stable")]
    rows = np.sort(rows[np.cumsum(census.sizes[rows]) - census.sizes[rows] < MEASURED_BYTES])
    found = list(texts_at(documents, rows, columns))
    result = measure(tokenizer.encoder, (("all", text) for text, *_ in found))
    for index, column in enumerate(columns, 1):
        groups = measure(tokenizer.encoder, ((row[index], row[0]) for row in found))
        result |= {
            value if column == "kind" else f"{column}={value}": numbers
            for value, numbers in groups.items()
            if value != "all"
        }
    return result


def _summary(statistics: dict[str, Any]) -> dict[str, Any]:
    held = statistics["held_out"]
    summary: dict[str, Any] = {"vocabulary_size": statistics["vocabulary_size"]}
    for name in ("bytes_per_token", "fertility", "continued_word_share"):
        summary[name] = {kind: values[name] for kind, values in held.items()}
    return summary
