"""The texts that benchmarks of curation run on: Debian's documentation packages, real and dirty.

Manuals of Git, Python, PostgreSQL and the Linux kernel: reStructuredText, plain text, and HTML with its tags taken out,
with tables, code, licences, menus and natural duplicates (the same manual as source and as page). Downloaded with
`apt-get download` into a folder the user names, once. Without apt or a network: files of the installed Python.
"""

from __future__ import annotations

import gzip
import html
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pyarrow

from benchmarks.curation.measure import note

PACKAGES = ("git-doc", "python3.11-doc", "postgresql-doc-15", "linux-doc-6.1")
UNPACKED = "x"
DOWNLOAD_SECONDS = 300
TAGS = re.compile(r"(?s)<(script|style).*?</\1>|<[^>]*>")
SUFFIXES = (".txt", ".rst", ".html", ".md", ".txt.gz", ".rst.gz")


def corpus(folder: Path, megabytes: int) -> pyarrow.Table:
    """About so many megabytes of documents (id, text, source), fewer if there are no more."""
    root = debian_documentation(folder)
    if root is None:
        note("no Debian packages: the corpus is the installed Python")
        root = Path(sysconfig.get_path("stdlib"))
    names, texts, size = [], [], 0
    for path in in_fair_order(root):
        text = text_of(path)
        if text is not None:
            names.append(path.relative_to(root).as_posix())
            texts.append(text)
            size += len(text)
            if size >= megabytes * 1_000_000:
                break
    columns = {
        "id": names,
        "text": pyarrow.array(texts, pyarrow.large_string()),
        "source": ["documentation"] * len(names),
    }
    return pyarrow.table(columns)


def debian_documentation(folder: Path) -> Path | None:
    """The folder with the unpacked packages; None if they cannot be had."""
    unpacked = folder / UNPACKED
    if unpacked.is_dir():
        return unpacked
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["apt-get", "download", *PACKAGES], cwd=folder, check=True, timeout=DOWNLOAD_SECONDS, capture_output=True
        )
        partial = folder / f"{UNPACKED}.partial"
        for package in sorted(folder.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(partial)], check=True, timeout=DOWNLOAD_SECONDS)
        partial.rename(unpacked)
    except (subprocess.SubprocessError, OSError) as error:
        note(f"apt-get download: {error}")
        return None
    return unpacked


def in_fair_order(root: Path) -> Iterator[Path]:
    """The files that hold text, by the hash of their path: any beginning is a fair cut."""
    files = (path for path in root.rglob("*") if path.name.endswith((*SUFFIXES, ".py")) and path.is_file())
    return iter(sorted(files, key=lambda path: blake2b(path.relative_to(root).as_posix().encode()).digest()))


def text_of(path: Path) -> str | None:
    """The text of a file; None if there is nothing to read."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.name.endswith(".gz") else raw).decode("utf-8", "replace").replace("\0", "")
    if path.name.endswith(".html"):
        text = html.unescape(TAGS.sub("", text))
    return text if text.strip() else None


def larger(texts: list[str], megabytes: int) -> Iterator[str]:
    """So many megabytes: the texts again and again, later rounds with a word of their own after every fourth word, so
    that they are new documents and not copies."""
    size = turn = 0
    while True:
        for text in texts:
            if turn:
                words = text.split(" ")
                words[3::4] = [f"{word} w{turn}" for word in words[3::4]]
                text = " ".join(words)
            yield text
            size += len(text)
            if size >= megabytes * 1_000_000:
                return
        turn += 1
