"""Stage `tokenize`: documents to token shards, one folder a source, and held-out documents for validation.

Invariants: every document's tokens end with <|endoftext|>; a validation document is in no training source; the order in
a source is the order of the documents. Which document goes where depends on its id, kind and quality only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.tokens.config import VALIDATION, TokenizeConfig, Where
from ingot.tokens.documents import Document, held_out, read_documents, read_ids
from ingot.tokens.shards import SourceWriter, write_index
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.files import atomic_folder
from ingot.workspace.stage import Stage, StageFolder


def matches(document: Document, where: Where) -> bool:
    """Whether the document belongs to a source with these conditions."""
    return where.kind in (None, document.kind) and document.quality >= where.quality_at_least


def sources_of(document: Document, config: TokenizeConfig, outside: frozenset[str]) -> list[str]:
    """The sources that take the document: validation alone if it is held out, else any number of training sources."""
    held = {VALIDATION: Where(kind=config.validation_kind)}
    conditions = held if document.id in outside else config.sources
    return [name for name, where in conditions.items() if matches(document, where)]


def bytes_of_tokens(tokenizer: Tokenizer) -> NDArray[np.int32]:
    """The bytes of text that each id stands for; special tokens stand for none."""
    sizes = [len(tokenizer.decode_bytes((id,), skip_special=True)) for id in range(tokenizer.vocabulary_size)]
    return np.asarray(sizes, dtype=np.int32)


def run(config: TokenizeConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Encode every document that a source or validation takes and write shards/."""
    tokenizer = Tokenizer.load(inputs["tokenizer"])
    ids = read_ids(inputs["documents"])
    outside = held_out(ids, config.validation_share)
    folder.progress.start(len(ids), unit="document")
    done = unused = 0
    with atomic_folder(folder.artifact("shards")) as temporary, ExitStack() as stack:
        writers = {
            name: stack.enter_context(closing(SourceWriter(temporary, name, tokenizer.vocabulary_size)))
            for name in [*config.sources, VALIDATION]
        }
        for batch in read_documents(inputs["documents"]):
            folder.stop.check()
            done += len(batch)
            routes = [sources_of(document, config, outside) for document in batch]
            taken = [(document, route) for document, route in zip(batch, routes, strict=True) if route]
            unused += len(batch) - len(taken)
            encoded = tokenizer.encode_batch([document.text for document, _ in taken])
            for (document, route), tokens in zip(taken, encoded, strict=True):
                tokens.append(tokenizer.end_of_text)
                size = len(document.text.encode("utf-8"))
                for name in route:
                    writers[name].append(document.id, tokens, size, document.quality)
            folder.progress.advance(done)
        entries = {name: writer.finish() for name, writer in writers.items()}
        write_index(temporary, entries, bytes_of_tokens(tokenizer), tokenizer.end_of_text)
    sources = {name: {key: entry[key] for key in ("documents", "tokens", "bytes")} for name, entry in entries.items()}
    return {"sources": sources, "unused_documents": unused}


STAGE = Stage(
    kind="tokenize",
    config=TokenizeConfig,
    needs={"documents": "documents", "tokenizer": "tokenizer"},
    makes=("shards",),
    run=run,
)
