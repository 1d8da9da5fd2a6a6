"""Reads the installed Python distribution: docstrings as prose, some files as code, READMEs and package descriptions.

    *.py, *.pyi            its docstrings as pages of prose (id PATH#docstrings-PAGE), and the file itself as code
    METADATA, PKG-INFO     the package's long description
    *.md *.rst *.txt …     the file

Files are parsed, never imported: nothing of them runs.
"""

from __future__ import annotations

import ast
import os
import platform
import sysconfig
import warnings
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from functools import cache
from importlib.metadata import distributions
from inspect import cleandoc
from pathlib import Path

from ingot.data.read.config import PythonSource, SourceConfig
from ingot.data.read.document import Document, checked
from ingot.data.read.find import format_of, path_hash, printable
from ingot.data.read.plain import file_text
from ingot.data.read.problem import ReadProblems
from ingot.data.read.split import FilePiece

METADATA_NAMES = ("METADATA", "PKG-INFO")
PYTHON_SUFFIXES = (".py", ".pyi")
NOT_WALKED = ("__pycache__", "site-packages", "dist-packages")
OURSELVES = "ingot"  # the evals are in there: the program must not train on itself


def installed_pieces(source: PythonSource) -> list[FilePiece]:
    """Files of the standard library and of the installed packages of the running interpreter."""
    roots: dict[str, str] = {"stdlib": sysconfig.get_path("stdlib")}
    for label, key in (("site-packages", "purelib"), ("platlib", "platlib")):
        if sysconfig.get_path(key) not in roots.values():  # purelib and platlib are one folder on most systems
            roots[label] = sysconfig.get_path(key)
    pieces = []
    for label, root in roots.items():
        for folder, names, file_names in os.walk(root):
            relative = folder[len(root) :].replace(os.sep, "/")
            names[:] = [name for name in names if name not in NOT_WALKED]
            if not relative:
                names[:] = [name for name in names if name != OURSELVES and not name.startswith(OURSELVES + "-")]
            for name in file_names:
                if form := installed_format(name):
                    identity = printable(f"{source.name}:{label}{relative}/{name}")
                    pieces.append(installed_piece(source, f"{folder}{os.sep}{name}", identity, form))
    return sorted(pieces, key=lambda piece: piece.identity)


def installed_format(name: str) -> str | None:
    """How a file of the distribution is read; None if it is not."""
    if name.lower().endswith(PYTHON_SUFFIXES):
        return "python"
    if name in METADATA_NAMES:
        return "metadata"
    return "text" if format_of(name) == "text" else None


def installed_piece(source: PythonSource, path: str, identity: str, form: str) -> FilePiece:
    """A file of the distribution; the hash of its path decides whether it is also code."""
    becomes_code = int.from_bytes(path_hash(identity)[8:]) < source.code_share * 2**64
    is_python = form == "python"
    try:
        size = Path(path).stat().st_size
    except OSError:  # a dangling link, named when it is read
        size = 0
    return FilePiece(path, identity, form, size, docstrings=is_python, whole=is_python and becomes_code)


@cache
def installed_versions() -> Mapping[str, str]:
    """The version of Python and of every installed package but our own: what `installed_pieces` depends on.

    Read once in a process: an eighth of a second, and a recipe with its plan asks many times.
    """
    known = [found.metadata for found in distributions()]  # each of `name` and `version` would read the file again
    packages = {each["Name"]: each["Version"] for each in known if each["Name"] != OURSELVES}
    return {"python": platform.python_version(), **packages}


def read_python(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> Iterator[Document]:
    """A Python file: the whole of it as code, its docstrings as prose."""
    text = file_text(piece, source, problems)
    if text is None:
        return
    if piece.whole:
        known = {"source": f"{source.name}-code", "kind": "code", "path": piece.relative}
        yield Document(piece.identity, text, known)
    if not piece.docstrings:
        return
    try:
        pages = docstring_pages(text)
    except NotParsable as error:
        problems.add(piece.identity, "not parsable as Python", f"({error})", size=piece.size, shown=text)
        return
    for number, page in enumerate(pages, start=1):
        identity = f"{piece.identity}#docstrings-{number}"
        prose = checked(page, identity, source, problems)  # escapes can put anything into a docstring
        if prose is not None:
            yield Document(identity, prose, {"source": f"{source.name}-docstrings", "kind": "prose"})


def read_metadata(piece: FilePiece, source: SourceConfig, problems: ReadProblems) -> Iterator[Document]:
    """The long description in a package's metadata."""
    text = file_text(piece, source, problems)
    if text is None:
        return
    if description := long_description(text):
        yield Document(piece.identity, description, {"source": f"{source.name}-metadata", "path": piece.relative})
    else:
        problems.add(piece.identity, "no description", "in the package's metadata", size=piece.size)


class NotParsable(ValueError):
    """The file is not Python that this interpreter can parse."""


PAGE_CHARACTERS = 4000


def docstring_pages(source: str) -> list[str]:
    """The docstrings of a file as documents of about `PAGE_CHARACTERS`, a blank line between two docstrings.

    A file with hundreds of methods becomes pages: as one text it would repeat its section headings so often that the
    repetition rules throw all of it away.
    """
    pages: list[str] = []
    page: list[str] = []
    size = 0
    for text in docstrings(source):
        page.append(text)
        size += len(text)
        if size >= PAGE_CHARACTERS:
            pages.append("\n\n".join(page))
            page, size = [], 0
    if page:
        pages.append("\n\n".join(page))
    return pages


def docstrings(source: str) -> list[str]:
    """The docstrings of a module and of its classes and functions that are not empty, in the order of the file.

    A file without any triple-quoted string is not parsed: it has no docstrings, or only one-word ones in single quotes.
    """
    if '"""' not in source and "'''" not in source:
        return []
    found: list[str] = []
    pending: list[ast.AST] = [parse(source)]
    while pending:
        node = pending.pop()
        body: list[ast.stmt] = getattr(node, "body", [])
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = body[0] if body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                found.append(cleandoc(first.value.value))
        elif isinstance(node, ast.If | ast.Try | ast.With):  # definitions under a version check or a guarded import
            body = [*body, *getattr(node, "orelse", [])]
        else:
            continue
        pending.extend(reversed(body))
    return [text for text in found if text]


def parse(source: str) -> ast.Module:
    """The syntax tree. Old Python, templates and test data with broken syntax raise `NotParsable`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's code
        try:
            return ast.parse(source)
        except SyntaxError as error:
            raise NotParsable(f"{error.msg} in line {error.lineno}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise NotParsable(f"{type(error).__name__}: {error}") from None


def long_description(metadata: str) -> str:
    """Summary and long description of a package's METADATA file; empty if it has none."""
    message = HeaderParser().parsestr(metadata)
    body = message.get_payload() or ""
    if not isinstance(body, str) or not body.strip():  # metadata before version 2.1 keeps it in a folded header
        body = "\n".join(line.removeprefix("        ") for line in str(message.get("Description", "")).split("\n"))
    if not body.strip() or body.strip() == "UNKNOWN":
        return ""
    summary = str(message.get("Summary", "")).strip()
    return f"{summary}\n\n{body.strip()}\n" if summary else f"{body.strip()}\n"
