"""Prose inside Python files and package metadata. Files are parsed, never imported: nothing of them runs."""

from __future__ import annotations

import ast
import warnings
from email.parser import HeaderParser
from inspect import cleandoc


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
