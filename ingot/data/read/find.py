"""Finds the files of a source: patterns, folders and URLs, with names that are the same on every machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from glob import has_magic
from hashlib import blake2b
from pathlib import Path

from fsspec.core import url_to_fs

from ingot.data.read.streams import compression_of
from ingot.workspace.errors import DataError
from ingot.workspace.files import fingerprint
from ingot.workspace.packages import pip_install

SUFFIXES: dict[str, str] = {
    ".warc": "warc", ".wet": "warc",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".parquet": "parquet", ".arrow": "arrow",
    ".csv": "csv", ".tsv": "tsv",
    ".txt": "text", ".md": "text", ".rst": "text", ".py": "text", ".pyi": "text",
    ".xml": "mediawiki",
}  # fmt: skip
TEXT_NAMES = ("README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CHANGELOG", "AUTHORS", "CONTRIBUTING")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file: where it is, its path below the fixed part of the pattern, its size."""

    path: str
    relative: str
    size: int


def find(patterns: str | list[str], place: str, *, skip: frozenset[str] = frozenset()) -> list[FoundFile]:
    """The files that match a path, glob or URL, or several, by relative path. A folder means everything below it.

    Nothing that matches is an error; so are two files with the same relative path, whose ids would be the same.
    """
    found: dict[str, FoundFile] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        for file in matching(pattern, place, skip):
            found.setdefault(file.path, file)
    files = sorted(found.values(), key=lambda file: file.relative)
    if len({file.relative for file in files}) < len(files):
        raise DataError(
            "two patterns find different files with the same relative path",
            place=place,
            fix="make them two sources with names of their own",
        )
    return files


def matching(pattern: str, place: str, skip: frozenset[str]) -> list[FoundFile]:
    """The files of one pattern."""
    try:
        file_system, inside = url_to_fs(str(Path(pattern).expanduser()) if "://" not in pattern else pattern)
    except ImportError as error:  # "Install s3fs to access S3"
        package = next(iter(re.findall(r"Install (\S+) ", str(error))), "the package that it names")
        raise DataError(f"{pattern} cannot be opened: {error}", place=place, fix=pip_install(package)) from None
    base = fixed_part(inside)
    if has_magic(inside):
        listed = file_system.glob(inside, detail=True)
    else:
        listed = file_system.find(inside, detail=True)
    files = [info for info in listed.values() if info["type"] in ("file", "link", "other")]
    if not files:
        raise DataError(
            f"nothing matches {pattern}", place=place, fix="check the path; it is relative to the working directory"
        )
    if len(files) == 1 and files[0]["name"].rstrip("/") == base.rstrip("/"):
        base = base.rstrip("/").rpartition("/")[0]
    found = []
    for info in files:
        relative = info["name"].removeprefix(base).lstrip("/")
        if not skip.intersection(relative.split("/")[:-1]):
            path = info["name"] if "://" not in pattern else file_system.unstrip_protocol(info["name"])
            found.append(FoundFile(path, printable(relative), int(info["size"] or 0)))
    return found


def fixed_part(pattern: str) -> str:
    """A pattern up to the folder before its first wildcard: "/data" for "/data/*/a-*.txt"; a plain path as it is."""
    parts = pattern.split("/")
    fixed = 0
    while fixed < len(parts) and not has_magic(parts[fixed]):
        fixed += 1
    return "/".join(parts[:fixed])


def printable(name: str) -> str:
    """A file name that can be stored: bytes that are no UTF-8 are written as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def file_fingerprint(path: str) -> str:
    """What tells whether a file has changed: its hash, or for large and remote ones its size and time or tag."""
    if "://" not in path:
        try:
            return fingerprint(Path(path))
        except OSError:
            return "missing"  # a dangling link: named when it is read
    file_system, inside = url_to_fs(path)
    return str(file_system.ukey(inside))


def format_of(path: str) -> str | None:
    """How a file is read, by its name; None if it is not."""
    name = path.rpartition("/")[2]
    lower = name.lower().removesuffix(compression_of(name))
    for suffix, form in SUFFIXES.items():
        if lower.endswith(suffix):
            return form
    # LICENSE, LICENSE-APACHE, README, COPYING.LESSER: a known first word and no suffix of another format
    stem, _, suffix = name.partition(".")
    if stem.upper().startswith(TEXT_NAMES) and (not suffix or suffix.isupper()):
        return "text"
    return None


def kind_of(path: str) -> str:
    """What a file is by its name, for people: its suffix (`.pdf`, `.tar.gz`), or `a name without a suffix`."""
    name = path.rpartition("/")[2].lower()
    compression = compression_of(name)
    suffix = Path(name.removesuffix(compression)).suffix + compression
    return suffix if re.fullmatch(r"[.a-z0-9_+-]{2,16}", suffix) else "a name without a suffix"


def path_hash(identity: str) -> bytes:
    """16 bytes: the first half orders files for the budget, the second half picks those that become code."""
    return blake2b(identity.encode(), digest_size=16).digest()
