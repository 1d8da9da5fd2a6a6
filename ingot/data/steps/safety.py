"""The step `safety` counts the terms of lists and asks a classifier, and removes or marks documents.

    safety = sum over lists of  weight × hits

Meant for filters of dangerous knowledge (chemical, biological, radiological, nuclear): a list of terms finds candidates,
a classifier tells an encyclopaedia from instructions. Ingot ships no list; the counts by list are in the funnel's
columns, so that what a list removes can be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ingot.data.native import Bytes, Hashes, Offsets, hash_span, join, kernel
from ingot.data.read.streams import read_list
from ingot.data.step import PerDocument, Rule, at_most, numbers
from ingot.data.steps.classify import label_number
from ingot.data.steps.classify.config import fingerprint_of, model_fingerprints
from ingot.data.steps.classify.store import load_model
from ingot.data.text.characters import WORD, character_flags, code_point, width
from ingot.data.text.texts import Texts
from ingot.workspace.config import Config
from ingot.workspace.errors import DataError

SEED = np.uint64(0x7E57)
MAX_WORDS = 16


@kernel
def next_span(data: Bytes, at: int, end: int, flags: Bytes) -> tuple[int, int]:
    """Where the next word begins and ends; an empty span is the end of the text."""
    while at < end and not flags[code_point(data, at)] & WORD:
        at += width(data[at])
    first = at
    while at < end and flags[code_point(data, at)] & WORD:
        at += width(data[at])
    return first, at


@kernel
def count_hits(
    data: Bytes, offsets: Offsets, flags: Bytes, keys: Hashes, owners: Offsets, longest: int, counts: Offsets
) -> None:
    """Hits by text and list. `keys` are sorted; `owners` are the lists that have the key, as bits."""
    recent = np.zeros(MAX_WORDS, np.uint64)  # hashes of the last 1, 2, … words
    for text in range(len(offsets) - 1):
        at, end, read = offsets[text], offsets[text + 1], 0
        while at < end:
            first, at = next_span(data, at, end, flags)
            if first == at:
                break
            word = hash_span(data, first, at, SEED)
            for size in range(min(read, longest - 1), 0, -1):
                recent[size] = join(recent[size - 1], word)
            recent[0] = word
            read += 1
            for size in range(min(read, longest)):
                index = np.searchsorted(keys, recent[size])
                if index < len(keys) and keys[index] == recent[size]:
                    for owner in range(counts.shape[1]):
                        counts[text, owner] += (owners[index] >> owner) & 1


@kernel
def last_hashes(data: Bytes, offsets: Offsets, flags: Bytes, found: Hashes) -> None:
    """The hash of all words of each text in a row: that of a term, and 0 if it has no word."""
    for text in range(len(offsets) - 1):
        at, end, words = offsets[text], offsets[text + 1], 0
        while at < end:
            first, at = next_span(data, at, end, flags)
            if first < at:
                word = hash_span(data, first, at, SEED)
                found[text] = join(found[text], word) if words else word
                words += 1


def lower(texts: pyarrow.Array | pyarrow.ChunkedArray) -> Texts:
    """A column in lower case."""
    return Texts.of(pyarrow.compute.utf8_lower(texts.cast(pyarrow.large_string())))


def term_hashes(terms: Iterable[str]) -> Hashes:
    """The hash of every term."""
    texts = lower(pyarrow.array(list(terms), pyarrow.large_string()))
    found = np.zeros(len(texts), np.uint64)
    last_hashes(texts.data, texts.offsets, character_flags(), found)
    return found


def count_terms(texts: pyarrow.Array | pyarrow.ChunkedArray, lists: list[Hashes], longest: int) -> Offsets:
    """By text and list, how often a term of the list occurs."""
    keys, inverse = np.unique(np.concatenate([np.zeros(0, np.uint64), *lists]), return_inverse=True)
    owners = np.zeros(len(keys), np.int64)
    bits = np.concatenate(
        [np.zeros(0, np.int64), *(np.full(len(one), 1 << number) for number, one in enumerate(lists))]
    )
    np.bitwise_or.at(owners, inverse, bits.astype(np.int64))
    lowered = lower(texts)
    counts = np.zeros((len(lowered), len(lists)), np.int64)
    if len(keys):
        count_hits(lowered.data, lowered.offsets, character_flags(), keys, owners, longest, counts)
    return counts


class TermList(Config):
    """A list of terms that a safety filter looks for."""

    name: str = Field(pattern=r"[a-z0-9_]+", description="its hits are in the column `safety_NAME`")
    file: str = Field(
        description="one entry a line, .gz allowed; empty lines and lines that begin with `#` are skipped"
    )
    form: Literal["terms", "hashed", "regex"] = Field(
        default="terms",
        description="`terms`: words in a row, case and punctuation aside; `hashed`: such terms as 16 hexadecimal digits "
        "(`ingot classifier hash-terms`); `regex`: RE2 expressions, case aside",
    )
    weight: float = Field(default=1.0, ge=0, description="what one hit adds to the column `safety`")


def hashes_of(entry: TermList) -> NDArray[np.uint64]:
    """The hashes of a list's terms."""
    entries = read_list(entry.file)
    if entry.form == "hashed":
        for number, line in enumerate(entries, start=1):
            if not re.fullmatch(r"[0-9a-f]{16}", line):
                raise DataError(
                    f"{line!r} is not a hash", place=f"{entry.file}, entry {number}", fix="make it with hash-terms"
                )
        return np.array([int(line, 16) for line in entries], np.uint64)
    for line in entries:
        if not 1 <= len(re.findall(r"\w+", line)) <= MAX_WORDS:
            raise DataError(f"{line!r} has not 1 to {MAX_WORDS} words", place=entry.file, fix="shorten or remove it")
    return term_hashes(entries)


def count_regex(texts: pyarrow.ChunkedArray, entry: TermList) -> NDArray[np.int64]:
    """Matches of any expression of a list; RE2, so that no expression can run away."""
    pattern = "(?i)(?:" + "|".join(f"(?:{line})" for line in read_list(entry.file)) + ")"
    try:
        return np.asarray(pyarrow.compute.count_substring_regex(texts, pattern=pattern).to_numpy(), np.int64)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"not a regular expression of RE2: {error}", place=entry.file, fix="correct the line") from None


class SafetyStep(PerDocument):
    """Count hits of term lists and ask a classifier: a hook for CBRN-style filters. The lists are yours to bring."""

    decides = frozenset({"action", "maximum", "max_probability"})

    lists: list[TermList] = Field(default=[], description="term lists, counted one by one")
    model: str | None = Field(default=None, description="a classifier whose probability goes to `safety_model`")
    label: str | None = Field(default=None, description="its class that means unsafe; needed with `model`")
    action: Literal["remove", "mark"] = Field(
        default="remove", description="`remove` documents above a limit, or only `mark` them by the columns"
    )
    maximum: float = Field(default=0.0, ge=0, description="more weighted hits than this remove a document")
    max_probability: float = Field(default=0.5, ge=0, le=1, description="a higher probability removes a document")

    @model_validator(mode="after")
    def _has_something(self) -> SafetyStep:
        if not self.lists and self.model is None:
            raise ValueError("nothing to look for: give term `lists` or a `model`")
        if (self.model is None) != (self.label is None):
            raise ValueError("`model` and `label` go together: which class means unsafe?")
        if self.action == "mark":
            because = "action: mark removes nothing"
            self.refuse("maximum", "max_probability", because=because, instead="set action: remove")
        if not self.lists:
            self.refuse("maximum", because="there are no term `lists` whose hits could be counted")
        if self.model is None:
            self.refuse("max_probability", because="there is no `model` that could give one")
        names = [entry.name for entry in self.lists]
        if len(set(names)) < len(names) or "model" in names:
            raise ValueError("the lists need names of their own, other than `model`")
        return self

    def writes(self) -> tuple[str, ...]:
        return ("safety", *(f"safety_{entry.name}" for entry in self.lists), *(["safety_model"] if self.model else []))

    def outside(self) -> dict[str, str]:
        found = {entry.file: fingerprint_of(entry.file, self.step) for entry in self.lists}
        return found | (model_fingerprints(self.model, self.step) if self.model else {})

    @cached_property
    def hashes(self) -> list[NDArray[np.uint64]]:
        """The term lists, read once."""
        return [hashes_of(entry) for entry in self.lists if entry.form != "regex"]

    @cached_property
    def longest(self) -> int:
        """Words of the longest term; of hashed ones it is not known."""
        if any(entry.form == "hashed" for entry in self.lists):
            return MAX_WORDS
        plain = [entry for entry in self.lists if entry.form == "terms"]
        return max((len(re.findall(r"\w+", line)) for entry in plain for line in read_list(entry.file)), default=1)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        texts = documents.column("text").fill_null("")
        terms = iter(count_terms(texts, self.hashes, self.longest).T)
        total = np.zeros(len(documents))
        columns: dict[str, pyarrow.Array] = {}
        for entry in self.lists:
            counts = count_regex(texts, entry) if entry.form == "regex" else next(terms)
            columns[f"safety_{entry.name}"] = pyarrow.array(counts, pyarrow.int64())
            total += entry.weight * counts
        columns = {"safety": pyarrow.array(total), **columns}
        if self.model is not None and self.label is not None:
            model = load_model(self.model)
            number = label_number(model.labels, self.label, "step safety: label")
            columns["safety_model"] = pyarrow.array(model.score(Texts.of(texts))[:, number], pyarrow.float32())
        return columns

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        if self.action == "mark":
            return []
        found = [at_most("safety terms", numbers(columns, "safety"), self.maximum)]
        if self.model is not None:
            found.append(at_most("safety model", numbers(columns, "safety_model"), self.max_probability))
        return found
