"""Reads eval files: the set of each item, its question, answer and passage.

A file is a row an eval (jsonl, csv and tsv, also .gz and .zst; parquet) or one text (everything else). `decontaminate`
takes every string of a row. `decon` needs to know the question: named in the config, or guessed from the names of the
fields, in the order of the lists below. A choice among several (choices, options, endings, …) with the number or
letter of the right one gives the text of the right one as the answer. `Passage: … Question: … Answer:` around a
guessed question is removed: a leaked question rarely has the prompt format of one benchmark around it.

Invariant: a file that cannot be read, or whose question is not found, stops the step: a skipped eval is a silent leak.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from glob import has_magic
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import pyarrow.parquet
from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs
from pydantic import Field

from ingot.data.read.delimited import table_form, table_rows
from ingot.data.read.problem import Unreadable
from ingot.data.read.streams import whole, whole_lines
from ingot.workspace.config import Config
from ingot.workspace.errors import DataError

HOLE = re.compile(r"\{[^{}\s]*\}")

WRAPPED = re.compile(
    r"\s*(?P<passage>(?:passage|context|background|title|story|article):.*?\n)?\s*(?:question|problem|q):\s*(?P<question>.*?)"
    r"(?:\s*\n\s*(?:answer|a)\s*:?\s*)?",
    re.IGNORECASE | re.DOTALL,
)
"""How prompts are formatted: `Passage: … Question: … Answer:`."""

ROWS = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".parquet")
NAMES = ("id", "task_id", "question_id", "uid", "key")
QUESTIONS = (
    *("question", "problem", "query", "context_options", "ctx", "prompt", "context", "instruction", "turns"),
    *("text", "code", "input"),
)
ANSWERS = (
    *("best_answer", "solution", "canonical_solution", "continuation", "target", "answer", "answers"),
    *("output", "code", "response", "rationale"),
)
PASSAGES = ("passage", "story", "context")
CHOICES = ("choices", "options", "endings", "context_options")
RIGHT = ("answer", "gold", "label", "correct", "answerKey")


class EvalFiles(Config):
    """Eval files whose fields are named; a plain path in `against` guesses them."""

    files: str = Field(description="path or glob: jsonl(.gz, .zst), parquet, csv, txt, md")
    name: str = Field(default="", description="name of the eval set in reports (empty: folder/file)")
    question: str = Field(description="field with the question or prompt")
    answer: str = Field(default="", description="field with the answer (empty: none)")
    passage: str = Field(default="", description="field with the text that the question is about (empty: none)")


Against = Sequence[str | EvalFiles]


class EvalIndex(Protocol):
    """The evals of a step as it searches for them."""

    @property
    def ngrams(self) -> Sized:
        """Their different n-grams."""

    def say(self) -> list[str]:
        """What will be searched for, and what cannot be."""

    def sizes(self) -> dict[str, tuple[int, int]]:
        """By eval set: its evals, and how many of them are searched for."""


@dataclass(frozen=True)
class Eval:
    """One item of an eval set."""

    set: str
    id: str
    question: str
    answer: str = ""
    passage: str = ""


@dataclass(frozen=True)
class EvalTexts:
    """One item of an eval set as its strings, for `decontaminate`."""

    set: str
    id: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class EvalRow:
    """A row of an eval file, as it was read."""

    set: str
    id: str
    value: Any  # a mapping, or the whole text of a file that has no rows
    fields: EvalFiles | None
    place: str


def eval_texts(against: Against, templates: Sequence[str]) -> Iterator[EvalTexts]:
    """Every eval as the strings to search for."""
    for name, parts in template_parts(templates):
        yield from (EvalTexts("texts", name, (part,)) for part in parts)
    for row in eval_rows(against):
        if row.fields is None:
            yield EvalTexts(row.set, row.id, tuple(strings(row.value)))
        else:
            found = question_answer_passage(row)
            texts = (found.question, found.answer, found.passage)
            yield EvalTexts(row.set, row.id, tuple(text for text in texts if text))


def evals(against: Against, templates: Sequence[str] = ()) -> Iterator[Eval]:
    """Every eval with its question, answer and passage."""
    for name, parts in template_parts(templates):
        yield from (Eval("texts", name, part) for part in parts)
    yield from map(question_answer_passage, eval_rows(against))


def template_parts(templates: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The fixed parts of each prompt written in the config, with its number."""
    for number, template in enumerate(templates, start=1):
        yield str(number), tuple(part for part in HOLE.split(template) if part.strip())


def eval_rows(against: Against) -> Iterator[EvalRow]:
    """Every row of every eval file, in the order of the config, files sorted."""
    for source in against:
        fields = None if isinstance(source, str) else source
        for system, path in matching_files(source if isinstance(source, str) else source.files):
            pure = PurePosixPath(path)
            name = (fields.name if fields else "") or f"{pure.parent.name}/{pure.name.partition('.')[0]}"
            try:
                for number, value in file_rows(system, path):
                    is_row = isinstance(value, dict)
                    own = next((value[key] for key in NAMES if is_row and value.get(key) is not None), number)
                    key = value.get("eval_key") if is_row else None
                    yield EvalRow(
                        key if isinstance(key, str) else name, str(own), value, fields, f"{path}: row {number}"
                    )
            except (OSError, EOFError, ValueError, Unreadable) as error:
                raise DataError(f"eval file: {error}", place=path, fix="repair it or take it off `against`") from None


def matching_files(pattern: str) -> list[tuple[AbstractFileSystem, str]]:
    """The files that match a path, URL or glob, sorted; a folder means everything below it. None is an error."""
    system, path = url_to_fs(str(Path(pattern).expanduser()) if "://" not in pattern else pattern)
    if has_magic(path):
        paths = [found for found in system.glob(path) if system.isfile(found)]
    elif system.isdir(path):
        paths = system.find(path)
    else:
        paths = [path] if system.exists(path) else []
    if not paths:
        raise DataError(
            f"nothing matches {pattern}",
            place="decontaminate: against",
            fix="check the path; it is relative to the working directory",
        )
    return [(system, found) for found in sorted(paths)]


def file_rows(system: AbstractFileSystem, path: str) -> Iterator[tuple[int, Any]]:
    """Number (from 1) and value of every row; a file that has no rows is one text."""
    lower = path.lower()
    if lower.endswith(".parquet"):
        with system.open(path, "rb") as file:
            yield from enumerate(pyarrow.parquet.read_table(file).to_pylist(), start=1)
        return
    with system.open(path, "rb") as file:
        if form := table_form(path):
            yield from enumerate((row for _, row in table_rows(file, path, form)), start=1)
            return
        if not lower.endswith(ROWS):
            yield 1, decoded(whole(file, path), "the text")
            return
        for number, line in enumerate(whole_lines(file, path), start=1):
            if line.strip():
                try:
                    yield number, json.loads(decoded(line, f"row {number}"))
                except json.JSONDecodeError as error:
                    raise ValueError(f"row {number}: not JSON: {error}") from None


def decoded(raw: bytes, what: str) -> str:
    """Bytes as text."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} is not UTF-8 at offset {error.start}") from None


def strings(value: Any) -> Iterator[str]:
    """All strings inside a JSON-like value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def question_answer_passage(row: EvalRow) -> Eval:
    """The parts of a row, from the named fields or by guessing."""
    if isinstance(row.value, str):
        return Eval(row.set, row.id, row.value)
    value, fields = row.value, row.fields
    if fields is not None:
        missing = [name for name in (fields.question, fields.answer, fields.passage) if name and name not in value]
        if missing:
            raise DataError(f"no field {missing[0]}", place=row.place, fix=f"name one of {', '.join(value)}")
        answer, passage = (text_of(value.get(name)) for name in (fields.answer, fields.passage))
        return Eval(row.set, row.id, text_of(value[fields.question]), answer, passage)

    question = next((name for name in QUESTIONS if value.get(name)), None)
    if question is None:
        raise DataError(
            f"no question among the fields {', '.join(value)}",
            place=row.place,
            fix="name it: {files: …, question: FIELD, answer: FIELD}, or leave the file out",
        )
    passage = next((name for name in PASSAGES if name != question and value.get(name)), "")
    asked = right_choice(value, (question,)) or text_of(value[question])
    about = text_of(value.get(passage))
    wrapped = WRAPPED.fullmatch(asked)
    if wrapped and wrapped["question"]:
        asked, about = wrapped["question"].strip(), about or (wrapped["passage"] or "").strip()
    return Eval(row.set, row.id, asked, answer_of(value, question), about)


def answer_of(value: dict[str, Any], question: str) -> str:
    """The right choice, or else the first field that is called an answer."""
    chosen = right_choice(value, tuple(name for name in CHOICES if name != question))
    names = (name for name in ANSWERS if name != question and value.get(name) not in (None, "", []))
    return chosen or text_of(first_of(value.get(next(names, ""))))


def first_of(value: Any) -> Any:
    """The first of several answers that count as right."""
    if isinstance(value, dict):
        value = value.get("input_text", value.get("text"))
    return value[0] if isinstance(value, list) and value else value


def right_choice(value: dict[str, Any], names: tuple[str, ...]) -> str:
    """The text of the right one among several choices; empty if the row has none or does not say which."""
    choices: list[Any] = next((value[name] for name in names if isinstance(value.get(name), list)), [])
    number = next((value[name] for name in RIGHT if value.get(name) is not None), None)
    if isinstance(number, str) and re.fullmatch("[A-Z]", number):
        number = ord(number) - ord("A")
    if isinstance(number, str) and number.isdecimal():
        number = int(number)
    return text_of(choices[number]) if isinstance(number, int) and 0 <= number < len(choices) else ""


def text_of(value: Any) -> str:
    """A field as text: what a conversation or a list says, line by line."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict):
        said = next((value[name] for name in ("content", "text", "value", "input_text") if name in value), None)
        return text_of(said)
    if isinstance(value, list):
        return "\n".join(filter(None, map(text_of, value)))
    return ""


def file_fingerprints(patterns: Sequence[str]) -> dict[str, str]:
    """The content hash of every file that matches."""
    found = {}
    for pattern in patterns:
        for system, path in matching_files(pattern):
            with system.open(path, "rb") as file:
                found[path] = sha256(file.read()).hexdigest()[:24]
    return found
