"""The step `code_language` finds the programming language of a file.

Evidence is used in the order of trust, as GitHub's linguist does:
    name       `Makefile`, `Dockerfile`
    extension  `.py`; one that several languages share (`.h`, `.m`, `.pl`, `.ts`) is settled by the text among those
    shebang    `#!/usr/bin/env python3`
    content    a beginning that only one language has (`<?xml`, `{"`), else lines that begin as only one language's do,
               counted in the first 8,000 bytes
Where nothing answers, the column is null.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.step import PerDocument, Rule
from ingot.data.steps.code_language.languages import (
    EXTENSIONS,
    FILE_NAMES,
    INTERPRETERS,
    NO_COMMENT,
    SHEBANG,
    SIGNS,
    STARTS,
    USUAL_SHARE,
    WEAK,
    WEAK_SHARE,
)
from ingot.data.text.texts import Texts

HEAD = 8_000
LEAST_SIGNS = 2
LANGUAGES = tuple(SIGNS)
ANY = (*SIGNS, *STARTS)
Answer = tuple[str | None, str | None]
# What is C is C++ too, but not the other way round: a child with signs of its own has those of its parent too.
PARENTS = {"C++": "C", "Cuda": "C++", "TypeScript": "JavaScript", "Cython": "Python"}
LONGEST_SHEBANG = 200  # characters: some expressions take the square of what they read


def sign_counts(heads: list[str]) -> NDArray[np.int64]:
    """By text and language, how many lines have a sign of the language."""
    column = pyarrow.array(heads, pyarrow.large_string())
    counts = [pyarrow.compute.count_substring_regex(column, pattern=SIGNS[name]).to_numpy() for name in LANGUAGES]
    found = np.stack(counts, axis=1).astype(np.int64)
    lines = pyarrow.compute.count_substring_regex(column, pattern=NO_COMMENT).to_numpy()
    for name in WEAK:
        column_of = LANGUAGES.index(name)
        found[found[:, column_of] < WEAK_SHARE.get(name, USUAL_SHARE) * lines, column_of] = 0
    for child, parent in PARENTS.items():
        own = found[:, LANGUAGES.index(child)]
        own += np.where(own >= LEAST_SIGNS, found[:, LANGUAGES.index(parent)], 0)
    return found


def by_content(heads: list[str], among: list[tuple[str, ...]] | None = None) -> list[str | None]:
    """The language of each text with the most signs, of all languages or of some."""

    answers: list[str | None] = []
    for index, counts in enumerate(sign_counts(heads)):
        head = heads[index]
        wanted = among[index] if among else ANY
        start = next((name for name, pattern in STARTS.items() if name in wanted and pattern.match(head)), None)
        if start is not None:
            answers.append(start)
            continue
        signs = {name: counts[LANGUAGES.index(name)] for name in wanted if name in SIGNS}
        best = max(signs, key=lambda name: signs[name], default=None)
        answers.append(best if best is not None and signs[best] >= LEAST_SIGNS else None)
    return answers


def by_name(path: str | None) -> tuple[tuple[str, ...], str | None]:
    """The languages that a file's name allows, and whether its name or its extension says so."""

    name = PurePosixPath(path or "").name.lower()
    if name in FILE_NAMES:
        return (FILE_NAMES[name],), "name"
    languages = EXTENSIONS.get(name.rpartition(".")[2], ()) if "." in name else ()
    return languages, "extension" if languages else None


def by_shebang(head: str) -> str | None:
    """The language of the interpreter in the first line."""

    mark = SHEBANG.match(head[:LONGEST_SHEBANG])
    return INTERPRETERS.get(mark[1].lower()) if mark else None


def languages_of(paths: list[str | None], heads: list[str]) -> list[Answer]:
    """The language of every file, and by what it was found."""
    answers: list[Answer] = [(None, None)] * len(paths)
    asked: list[int] = []
    among: list[tuple[str, ...]] = []
    for index, (path, head) in enumerate(zip(paths, heads, strict=True)):
        languages, by = by_name(path)
        script = by_shebang(head) if not languages else None
        if len(languages) == 1:
            answers[index] = (languages[0], by)
        elif script:
            answers[index] = (script, "shebang")
        else:
            answers[index] = (languages[0] if languages else None, by)
            asked.append(index)
            among.append(languages or ANY)
    for index, found in zip(asked, by_content([heads[index] for index in asked], among), strict=True):
        if found:
            answers[index] = (found, answers[index][1] or "content")
    return answers


class CodeLanguageStep(PerDocument):
    """Fill `code_language`, and in `code_language_by` how it was found: name, extension, shebang or content."""

    rate = 15
    decides = frozenset({"keep"})

    path: str = Field(default="path", description="column of the file's path; where it is null, the content decides")
    keep: list[str] = Field(
        default=[], description="documents in another language are removed, as in [Python, C] (empty: none is)"
    )

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), self.path)

    def writes(self) -> tuple[str, ...]:
        return ("code_language", "code_language_by")

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        texts = Texts.of(documents.column("text"))
        heads = [
            texts.data[start : min(end, start + HEAD)].tobytes().decode("utf-8", "ignore")
            for start, end in zip(texts.offsets[:-1], texts.offsets[1:], strict=True)
        ]
        answers = languages_of(documents.column(self.path).to_pylist(), heads)
        return {
            "code_language": pyarrow.array([language for language, _ in answers], pyarrow.string()),
            "code_language_by": pyarrow.array([by for _, by in answers], pyarrow.string()),
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        if not self.keep:
            return []
        languages = columns.column("code_language").to_pylist()
        other = np.array([language not in self.keep for language in languages], bool)
        return [Rule("code language", other, languages, f"is not {' or '.join(self.keep)}")]
