"""The step `safety`: counts by list, a weighted sum, a classifier's probability; then remove or mark.

    safety = sum over lists of  weight × hits

Meant for filters of dangerous knowledge (chemical, biological, radiological, nuclear): a list of terms finds candidates,
a classifier tells an encyclopaedia from instructions. Ingot ships no list; the counts by list are in the funnel's
columns, so that what a list removes can be looked at.
"""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingot.data.classify.config import SafetyStep, TermList
from ingot.data.classify.scoring import label_number
from ingot.data.classify.store import load_model
from ingot.data.classify.terms import MAX_WORDS, count_terms, term_hashes
from ingot.data.step import PerDocument, Rule, at_most, numbers
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError

if TYPE_CHECKING:
    import pyarrow


def entries_of(entry: TermList) -> list[str]:
    """The entries of a list's file."""
    lines = Path(entry.file).read_text(encoding="utf-8").splitlines()
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not found:
        raise DataError("the list is empty", place=entry.file, fix="one term a line")
    return found


def hashes_of(entry: TermList) -> NDArray[np.uint64]:
    """The hashes of a list's terms."""
    entries = entries_of(entry)
    if entry.form == "hashed":
        for number, line in enumerate(entries, start=1):
            if not re.fullmatch(r"[0-9a-f]{16}", line):
                raise DataError(
                    f"{line!r} is no hash", place=f"{entry.file}, entry {number}", fix="make it with hash-terms"
                )
        return np.array([int(line, 16) for line in entries], np.uint64)
    for line in entries:
        if not 1 <= len(re.findall(r"\w+", line)) <= MAX_WORDS:
            raise DataError(f"{line!r} has not 1 to {MAX_WORDS} words", place=entry.file, fix="shorten or remove it")
    return term_hashes(entries)


class Safety(PerDocument[SafetyStep]):
    """Fills `safety`, one column a list and `safety_model`; removes what is above a limit, if asked to."""

    @cached_property
    def hashes(self) -> list[NDArray[np.uint64]]:
        """The term lists, read once."""
        return [hashes_of(entry) for entry in self.config.lists if entry.form != "regex"]

    @cached_property
    def longest(self) -> int:
        """Words of the longest term; of hashed ones it is not known."""
        if any(entry.form == "hashed" for entry in self.config.lists):
            return MAX_WORDS
        plain = [entry for entry in self.config.lists if entry.form == "terms"]
        return max((len(re.findall(r"\w+", line)) for entry in plain for line in entries_of(entry)), default=1)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        import pyarrow

        texts = documents.column("text").fill_null("")
        terms = iter(count_terms(texts, self.hashes, self.longest).T)
        total = np.zeros(len(documents))
        columns: dict[str, pyarrow.Array] = {}
        for entry in self.config.lists:
            counts = count_regex(texts, entry) if entry.form == "regex" else next(terms)
            columns[f"safety_{entry.name}"] = pyarrow.array(counts, pyarrow.int64())
            total += entry.weight * counts
        columns = {"safety": pyarrow.array(total), **columns}
        if self.config.model is not None and self.config.label is not None:
            model = load_model(self.config.model)
            number = label_number(model.labels, self.config.label, "step safety: label")
            columns["safety_model"] = pyarrow.array(model.score(Texts.of(texts))[:, number], pyarrow.float32())
        return columns

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        if self.config.action == "mark":
            return []
        found = [at_most("safety terms", numbers(columns, "safety"), self.config.maximum)]
        if self.config.model is not None:
            found.append(at_most("safety model", numbers(columns, "safety_model"), self.config.max_probability))
        return found


def count_regex(texts: pyarrow.ChunkedArray, entry: TermList) -> NDArray[np.int64]:
    """Matches of any expression of a list; RE2, so that no expression can run away."""
    import pyarrow
    import pyarrow.compute

    pattern = "(?i)(?:" + "|".join(f"(?:{line})" for line in entries_of(entry)) + ")"
    try:
        return np.asarray(pyarrow.compute.count_substring_regex(texts, pattern=pattern).to_numpy(), np.int64)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"not a regular expression of RE2: {error}", place=entry.file, fix="correct the line") from None
