"""Documents to parquet: part-*.parquet with id, text, source, kind, quality and one column per annotation.

Parts hold about 64 MB of text, row groups 1024 documents, zstd. The same documents give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from ingot.data.document import Document
from ingot.workspace.files import file_sha256

PART_BYTES = 64_000_000
ROW_GROUP = 1024


def write_documents(documents: list[Document], folder: Path) -> str:
    """Write the parts into `folder`; returns a hash of all their bytes."""
    import pyarrow
    import pyarrow.parquet

    names = sorted({name for document in documents for name in document.annotations} - {"quality"})
    digest = hashlib.sha256()
    for number, part in enumerate(parts(documents)):
        columns = {
            "id": pyarrow.array([document.id for document in part], pyarrow.string()),
            "text": pyarrow.array([document.text for document in part], pyarrow.string()),
            "source": pyarrow.array([document.source for document in part], pyarrow.string()),
            "kind": pyarrow.array([document.kind for document in part], pyarrow.string()),
            "quality": pyarrow.array([document.annotations["quality"] for document in part], pyarrow.float64()),
        }
        for name in names:
            columns[name] = pyarrow.array([document.annotations.get(name) for document in part])
        path = folder / f"part-{number:05d}.parquet"
        table = pyarrow.table(columns)
        pyarrow.parquet.write_table(table, path, compression="zstd", row_group_size=ROW_GROUP)
        digest.update(file_sha256(path).encode())
    return digest.hexdigest()


def parts(documents: list[Document]) -> Iterator[list[Document]]:
    """Documents in order, cut into parts of about `PART_BYTES`."""
    part: list[Document] = []
    size = 0
    for document in documents:
        part.append(document)
        size += document.bytes
        if size >= PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
