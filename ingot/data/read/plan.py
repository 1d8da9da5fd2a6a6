"""Divides a source into splits: which files, cut where, in which order, within which budget.

Large files are cut by bytes (JSONL, WARC, MediaWiki XML) or by row groups (Parquet); small files are put together.
Without a budget splits follow the order of paths. With one, files are picked by the hash of their path, so that the
choice depends neither on the machine nor on the time of day, any budget takes a fair cut, and a larger one takes the
same files and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow
import pyarrow.parquet

from ingot.data.read.config import CodeSource, DatasetSource, FilesSource, PythonSource, SourceConfig
from ingot.data.read.dataset import dataset_files
from ingot.data.read.find import SUFFIXES, FoundFile, file_fingerprint, find, format_of, kind_of, path_hash
from ingot.data.read.problem import Unreadable
from ingot.data.read.python import installed_pieces, installed_versions
from ingot.data.read.split import FilePiece, Split
from ingot.data.read.streams import compression_of, opened
from ingot.workspace.config import content_hash
from ingot.workspace.errors import DataError

SPLIT_BYTES = 32_000_000
EXPANSION = {"": 1, ".gz": 4, ".zst": 4, ".bz2": 5, ".xz": 5}  # of text and HTML, roughly: for planning only

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
ONE_DOCUMENT = frozenset({"text", "html", "python", "metadata", "code"})  # formats with one document a file


@dataclass(frozen=True)
class Unread:
    """Files of a kind that is not read, beside others that are."""

    kind: str
    files: int
    bytes: int
    example: str


@dataclass(frozen=True)
class SourceSplits:
    """What a source will give: the splits to read, and what was found before the budget cut it."""

    splits: tuple[Split, ...]
    files: int
    bytes: int
    files_left_out: int = 0
    unread: tuple[Unread, ...] = ()

    @property
    def bytes_taken(self) -> int:
        """Bytes of text to expect; an estimate for compressed files."""
        return sum(split.bytes for split in self.splits)


def splits(source: SourceConfig, max_bytes: int | None = None) -> list[Split]:
    """The splits of a source; with `max_bytes`, only as many as give about that much text."""
    return list(plan(source, max_bytes).splits)


def plan(source: SourceConfig, max_bytes: int | None = None, split_bytes: int = SPLIT_BYTES) -> SourceSplits:
    """Find the files, cut them, choose within the budget, put small ones together."""
    pieces, others = found_in(source, split_bytes)
    taken = pieces if max_bytes is None else select(pieces, max_bytes, longest_text(source))
    paths = {piece.path for piece in pieces}
    left_out = len(paths) - len({piece.path for piece in taken})
    size = sum(piece.size for piece in pieces)
    return SourceSplits(tuple(grouped(taken, split_bytes)), len(paths), size, left_out, by_kind(others))


def pieces_of(source: SourceConfig, split_bytes: int) -> list[FilePiece]:
    """Everything there is to read, in the order of the paths."""
    return found_in(source, split_bytes)[0]


def found_in(source: SourceConfig, split_bytes: int) -> tuple[list[FilePiece], list[FoundFile]]:
    """What there is to read, in the order of the paths; and the files that match and are not read."""
    place = f"sources: {source.name}"
    if isinstance(source, PythonSource):
        return installed_pieces(source), []
    if isinstance(source, DatasetSource):
        named = dataset_files(source)
        return [piece for file, form in named for piece in cut(file, form, source.name, split_bytes)], []
    if isinstance(source, CodeSource):
        files = find(source.code, place, skip=frozenset(source.skip))
        named = [(file, "archive" if file.path.lower().endswith(ARCHIVES) else "code") for file in files]
        return [piece for file, form in named for piece in cut(file, form, source.name, split_bytes)], []
    assert isinstance(source, FilesSource)
    pieces, others = [], []
    for file in find(source.files, place):
        form = source.format or format_of(file.path)
        if form is None:
            others.append(file)
        else:
            pieces += cut(file, form, source.name, split_bytes)
    if not pieces:
        kinds = ", ".join(f"{each.files:,} x {each.kind}" for each in by_kind(others))
        raise DataError(
            f"no file that can be read among those that match ({kinds})",
            place=place,
            fix=f"give files that end in {', '.join(SUFFIXES)} (or those with .gz, .zst, .bz2, .xz), or say `format`",
        )
    return pieces, others


def by_kind(files: Sequence[FoundFile]) -> tuple[Unread, ...]:
    """Files counted by kind, the most frequent first; the first of each is its example."""
    kinds: dict[str, list[FoundFile]] = {}
    for file in files:
        kinds.setdefault(kind_of(file.path), []).append(file)
    found = [Unread(kind, len(here), sum(file.size for file in here), here[0].relative) for kind, here in kinds.items()]
    return tuple(sorted(found, key=lambda each: (-each.files, each.kind)))


def cut(file: FoundFile, form: str, name: str, split_bytes: int) -> list[FilePiece]:
    """A file as pieces of about `split_bytes`, where its format can be cut."""
    compression = compression_of(file.path)
    expansion = EXPANSION[compression]
    identity = f"{name}:{file.relative}"
    whole = FilePiece(file.path, identity, form, file.size * expansion)
    if form == "parquet":
        return row_groups(whole, split_bytes)
    can_be_cut = (form in ("jsonl", "mediawiki") and not compression) or (form == "warc" and compression in ("", ".gz"))
    count = whole.size // split_bytes
    if not can_be_cut or count < 2:
        return [whole]
    edges = [file.size * number // count for number in range(count + 1)]
    return [replace(whole, start=start, end=end, size=(end - start) * expansion) for start, end in pairwise(edges)]


def row_groups(whole: FilePiece, split_bytes: int) -> list[FilePiece]:
    """A Parquet file as runs of row groups; one whose index cannot be read stays whole, to be named when it is read."""
    try:
        with opened(whole.path) as file:
            metadata = pyarrow.parquet.ParquetFile(file).metadata
            sizes = [metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups)]
    except (pyarrow.ArrowException, OSError, Unreadable):
        return [whole]
    pieces, first, size = [], 0, 0
    for number, bytes_here in enumerate(sizes):
        size += bytes_here
        if size >= split_bytes or number == len(sizes) - 1:
            pieces.append(replace(whole, start=first, end=number + 1, size=size))
            first, size = number + 1, 0
    return pieces


def longest_text(source: SourceConfig) -> int | None:
    """The size from which a text file becomes several documents; None where it does not."""
    return (source.cut_at or source.max_document_bytes) if isinstance(source, FilesSource) else None


def select(pieces: Sequence[FilePiece], budget: int, longest: int | None = None) -> list[FilePiece]:
    """The pieces to read: by hash of the path, until their sizes reach `budget`. Of files of rows, and of a text longer than
    `longest`, which becomes several documents, the first of them.

    What is prose by its type and the rest (Python files, files of rows) get half of it each, and what the other half
    leaves over: a few programs have less prose than a budget, an environment full of packages has more than a small one.
    """
    halves: tuple[list[int], list[int]] = ([], [])
    for index, piece in enumerate(pieces):
        halves[piece.format == "python" or piece.format not in ONE_DOCUMENT].append(index)
    sizes = [sum(pieces[index].size for index in half) for half in halves]
    shares = (max(budget // 2, budget - sizes[1]), max(budget - budget // 2, budget - sizes[0]))
    taken: dict[int, FilePiece] = {}
    for half, share in zip(halves, shares, strict=True):
        for index in sorted(half, key=lambda each: _order(pieces[each])):
            if share <= 0:
                break
            piece = pieces[index]
            cut = longest is not None and piece.format == "text" and piece.size > longest
            if (cut or piece.format not in ONE_DOCUMENT) and piece.size > share:
                piece = replace(piece, limit=share)
            taken[index] = piece
            share -= piece.size
    return [taken[index] for index in sorted(taken)]


def _order(piece: FilePiece) -> tuple[bytes, str, int]:
    """A fair order that depends on nothing but the piece."""
    return path_hash(piece.identity)[:8], piece.identity, piece.start


def grouped(pieces: Sequence[FilePiece], split_bytes: int) -> list[Split]:
    """Neighbouring pieces together, until they reach `split_bytes`."""
    groups: list[list[FilePiece]] = []
    size = split_bytes
    for piece in pieces:
        if size + piece.size > split_bytes:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += piece.size
    fingerprints = {path: file_fingerprint(path) for path in dict.fromkeys(piece.path for piece in pieces)}
    return [
        Split(
            key=content_hash([piece.content(fingerprints[piece.path]) for piece in group], 24),
            pieces=tuple(group),
            bytes=sum(min(piece.size, piece.limit or piece.size) for piece in group),
        )
        for group in groups
    ]


def fingerprints(source: SourceConfig) -> dict[str, str]:
    """What tells whether the files of a source have changed, by path; of the installed Python, its versions."""
    if isinstance(source, PythonSource):
        return dict(installed_versions())
    paths = dict.fromkeys(piece.path for piece in pieces_of(source, SPLIT_BYTES))
    return {path: file_fingerprint(path) for path in paths}
