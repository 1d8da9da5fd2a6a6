"""The step `classify` scores documents with any linear classifier: a probability and the most probable class as columns.

A quality classifier writes one probability (`label: positive`, `column: quality`); a topic classifier the most probable
of many classes (`label_column: topic`).
"""

from __future__ import annotations

import numpy as np
import pyarrow
from pydantic import Field, model_validator

from ingot.data.step import PerDocument, Rule, at_least, numbers
from ingot.data.steps.classify.config import model_fingerprints
from ingot.data.steps.classify.store import load_model
from ingot.data.text.texts import Texts
from ingot.workspace.errors import RecipeError


def label_number(labels: tuple[str, ...], label: str, place: str) -> int:
    """The column of a class."""
    if label not in labels:
        raise RecipeError(f"the classifier has no class {label!r}", place=place, fix=f"one of {', '.join(labels)}")
    return labels.index(label)


class ClassifyStep(PerDocument):
    """Score documents with a classifier: one of `ingot classifier train`, or a fastText file such as DCLM's."""

    decides = frozenset({"minimum", "keep"})

    model: str = Field(description="folder of `ingot classifier train`, or a fastText .bin or .ftz")
    column: str = Field(default="score", min_length=1, description="column for the probability, such as `quality`")
    label: str | None = Field(
        default=None, description="the class whose probability is written (null: of the most probable class)"
    )
    label_column: str | None = Field(
        default=None, description="column for the most probable class, such as `topic` (null: not written)"
    )
    minimum: float | None = Field(
        default=None, ge=0, le=1, description="documents with a lower probability are removed; DCLM: 0.018112"
    )
    keep: list[str] = Field(
        default=[], description="documents of another most probable class are removed (empty: none)"
    )

    @model_validator(mode="after")
    def _has_label_column(self) -> ClassifyStep:
        if self.keep and not self.label_column:
            raise ValueError("`keep` compares the most probable class: name a column for it in `label_column`")
        return self

    def writes(self) -> tuple[str, ...]:
        return (self.column, *([self.label_column] if self.label_column else []))

    def outside(self) -> dict[str, str]:
        return model_fingerprints(self.model, self.step)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        model = load_model(self.model)
        scores = model.score(Texts.of(documents.column("text")))
        best = scores.argmax(axis=1)
        if self.label is None:
            chosen = scores[np.arange(len(best)), best]
        else:
            chosen = scores[:, label_number(model.labels, self.label, "step classify: label")]
        columns = {self.column: pyarrow.array(chosen, pyarrow.float32())}
        if self.label_column:
            names = pyarrow.array([model.labels[label] for label in best], pyarrow.string())
            columns[self.label_column] = names
        return columns

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        found = []
        if self.keep:
            labels = columns.column(self.label_column).to_pylist()
            other = np.array([label is not None and label not in self.keep for label in labels], bool)
            found.append(Rule(f"{self.label_column}", other, labels, f"is not {' or '.join(self.keep)}"))
        if self.minimum is not None:
            found.append(at_least(self.column, numbers(columns, self.column), self.minimum))
        return found
