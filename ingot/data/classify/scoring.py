"""The step `classify`: any linear classifier, its probability and its most probable class as columns.

A quality classifier writes one probability (`label: positive`, `column: quality`); a topic classifier the most probable
of many classes (`label_column: topic`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ingot.data.classify.config import ClassifyStep
from ingot.data.classify.store import load_model
from ingot.data.step import PerDocument, Rule, at_least, numbers
from ingot.data.text.texts import Texts
from ingot.workspace.errors import RecipeError

if TYPE_CHECKING:
    import pyarrow


def label_number(labels: tuple[str, ...], label: str, place: str) -> int:
    """The column of a class."""
    if label not in labels:
        raise RecipeError(f"the classifier has no class {label!r}", place=place, fix=f"one of {', '.join(labels)}")
    return labels.index(label)


class Classify(PerDocument[ClassifyStep]):
    """Fills the score and label columns; removes by them if asked to."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        import pyarrow

        model = load_model(self.config.model)
        scores = model.score(Texts.of(documents.column("text")))
        best = scores.argmax(axis=1)
        if self.config.label is None:
            chosen = scores[np.arange(len(best)), best]
        else:
            chosen = scores[:, label_number(model.labels, self.config.label, "step classify: label")]
        columns = {self.config.column: pyarrow.array(chosen, pyarrow.float32())}
        if self.config.label_column:
            names = pyarrow.array([model.labels[label] for label in best], pyarrow.string())
            columns[self.config.label_column] = names
        return columns

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        found = []
        if self.config.keep:
            labels = columns.column(self.config.label_column).to_pylist()
            other = np.array([label is not None and label not in self.config.keep for label in labels], bool)
            found.append(Rule(f"{self.config.label_column}", other, labels, f"is not {' or '.join(self.config.keep)}"))
        if self.config.minimum is not None:
            found.append(at_least(self.config.column, numbers(columns, self.config.column), self.config.minimum))
        return found
