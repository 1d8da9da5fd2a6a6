"""Stage `tokenize`: documents to token shards, one folder a source, and held-out documents for validation.

    encode   one task a part of the documents (some tens of megabytes): read columns, route, encode, sort by the order key
    write    the parts merged in order (order.py), one file a source, with checksums

Tasks are content-addressed (data/engine/work.py): a run that was killed goes on with the parts that were not done.

Invariants: every document's tokens end with <|endoftext|>; a validation document is in no training source. Which document
goes where depends on its id and its columns, its position in the source on its id, its copy and the seed; so the shards are the
same bytes for any number of workers and any division into files.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.engine.local_pool import LocalPool, available_processors
from ingot.data.engine.pool import SerialPool
from ingot.data.engine.work import Work
from ingot.data.text.texts import Texts
from ingot.tokens.config import TokenizeConfig
from ingot.tokens.documents import HELD_OUT, FilePart, HeldOut, columns_of, held_out, id_hashes, parts_of
from ingot.tokens.order import ENTRY, Entries, StoredEntries, joined, merged, order_keys
from ingot.tokens.routes import columns_needed, conditions, copies_of, quality_of, routes
from ingot.tokens.shards import SourceWriter, token_dtype, write_index
from ingot.tokens.tokenizer import FILES, Tokenizer
from ingot.workspace.config import content_hash
from ingot.workspace.files import atomic_folder, file_sha256
from ingot.workspace.stage import StageFolder

if TYPE_CHECKING:
    import pyarrow

WORK_FOLDER = "work"


def bytes_of_tokens(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """The bytes of text that each id stands for; special tokens stand for none."""
    sizes = np.zeros(tokenizer.vocabulary_size, np.int32)
    for id, spelled in tokenizer.bytes_of_id.items():
        sizes[id] = len(spelled)
    sizes[list(tokenizer.special.values())] = 0
    return sizes


@lru_cache(maxsize=1)
def loaded(folder: str, content: str) -> Tokenizer:
    """The tokenizer, cached in the process from task to task with its encoder's cache."""
    return Tokenizer.load(Path(folder))


def _content(folder: Path) -> str:
    """A name for what the tokenizer's files hold."""
    return content_hash({name: file_sha256(folder / name) for name in FILES if (folder / name).is_file()}, 24)


def encode_part(folder: Path, part: FilePart, options: dict[str, Any]) -> dict[str, Any]:
    """Task: the documents of a part that any source takes, encoded and sorted."""
    tokenizer = loaded(options["tokenizer"], options["tokenizer_content"])
    config, held = TokenizeConfig.model_validate(options["config"]), HeldOut(**options["held_out"])
    unused, found = 0, []
    for batch in part.batches(options["columns"]):
        entries, idle = _encode(batch, tokenizer, config, held, options["seed"])
        unused += idle
        found.append(entries)
    joined(found).in_order().save(folder)
    return {"unused": unused}


def _encode(
    batch: pyarrow.RecordBatch, tokenizer: Tokenizer, config: TokenizeConfig, held_out: HeldOut, seed: int
) -> tuple[Entries, int]:
    """The documents of a batch, an entry a copy, and how many documents no source takes."""
    import pyarrow

    hashes = id_hashes(batch.column("id").to_pylist(), HELD_OUT)
    held = held_out.mask(hashes)
    routed = routes(batch, conditions(config), held)
    copies = np.where(routed.any(axis=1), copies_of(batch), 0)
    copies[held] = np.minimum(copies[held], 1)
    taken = np.flatnonzero(copies)
    texts = Texts.of(batch.column("text").cast(pyarrow.large_string()).take(pyarrow.array(taken)))
    encoded = tokenizer.encoder.encode(texts, tokenizer.end_of_text)
    rows = np.repeat(np.arange(len(taken)), copies[taken])  # of the encoded documents, for each copy
    firsts = np.cumsum(copies[taken]) - copies[taken]
    entries = np.zeros(len(rows), ENTRY)
    entries["key"] = order_keys(hashes[taken][rows], np.arange(len(rows)) - firsts[rows], seed)
    entries["start"] = encoded.offsets[:-1][rows]
    entries["tokens"] = np.diff(encoded.offsets)[rows]
    entries["bytes"] = np.diff(texts.offsets)[rows]
    entries["quality"] = quality_of(batch)[taken][rows]
    tokens = encoded.ids.astype(token_dtype(tokenizer.vocabulary_size))
    return Entries(tokens, entries, routed[taken][rows]), batch.num_rows - len(taken)


def run(config: TokenizeConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Encode every document that a source or validation takes and write shards/."""
    content = _content(inputs["tokenizer"])
    tokenizer = loaded(str(inputs["tokenizer"]), content)
    if not tokenizer.encoder.fast:
        folder.progress.say(f"encoding with the tokenizers library, which is slow: {tokenizer.encoder.reason}")
    columns = columns_needed(config, columns_of(inputs["documents"]))
    held, documents = held_out(inputs["documents"], config.validation_share)
    folder.stop.check()
    parts = parts_of(inputs["documents"])
    options = {
        "tokenizer": str(inputs["tokenizer"]),
        "tokenizer_content": content,
        "config": config.work(),
        "held_out": {"share": held.share, "always": held.always, "never": held.never},
        "columns": columns,
        "seed": folder.seed,
    }
    workers = min(config.workers or available_processors(), len(parts))
    with LocalPool(workers) if workers > 1 else SerialPool() as pool:
        work = Work(folder.path / WORK_FOLDER, folder.progress, folder.stop, pool)
        done = work.run("encode", encode_part, parts, options)
    dtype = token_dtype(tokenizer.vocabulary_size)
    entries = _write([StoredEntries(one.folder, dtype) for one in done], tokenizer, config, folder)
    shutil.rmtree(folder.path / WORK_FOLDER)
    sources = {name: {key: entry[key] for key in ("documents", "tokens", "bytes")} for name, entry in entries.items()}
    return {
        "documents": documents,
        "sources": sources,
        "unused_documents": sum(one.report["unused"] for one in done),
    }


def _write(
    parts: list[StoredEntries], tokenizer: Tokenizer, config: TokenizeConfig, folder: StageFolder
) -> dict[str, dict[str, Any]]:
    """Merge the parts into shards/; the entries of the index by source."""
    with atomic_folder(folder.artifact("shards")) as temporary, ExitStack() as stack:
        writers = {
            name: stack.enter_context(closing(SourceWriter(temporary, name, tokenizer.vocabulary_size)))
            for name in conditions(config)
        }
        for stretch in merged(parts):
            folder.stop.check()
            for column, writer in enumerate(writers.values()):
                rows = np.flatnonzero(stretch.routes[:, column])
                chosen = stretch if len(rows) == len(stretch.entries) else stretch.chosen(rows)
                writer.extend(
                    chosen.tokens, chosen.entries["start"], chosen.entries["bytes"], chosen.entries["quality"]
                )
        entries = {name: writer.finish() for name, writer in writers.items()}
        write_index(temporary, entries, bytes_of_tokens(tokenizer), tokenizer.end_of_text)
    return entries
