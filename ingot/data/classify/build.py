"""From labelled texts to a classifier on disk with its report: what `ingot classifier train` does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingot.data.classify.config import TrainConfig
from ingot.data.classify.report import report
from ingot.data.classify.store import save_model
from ingot.data.classify.train import held_out, train
from ingot.data.text.texts import Texts


def train_and_report(
    pairs: Sequence[tuple[str, str]], options: TrainConfig, out: Path, recalls: Sequence[float] = (0.5, 0.9, 0.95)
) -> dict[str, Any]:
    """Train on (text, label) pairs, report on a share kept back, write the folder `out`. Returns what is written."""
    texts = [text for text, _ in pairs]
    labels = np.array([label for _, label in pairs], dtype=object)
    away = held_out(Texts.of(texts), options.held_out, options.seed)
    learnt = Texts.of([text for text, kept in zip(texts, away, strict=True) if not kept])
    model, losses = train(learnt, list(labels[~away]), options)
    about: dict[str, Any] = {
        "options": options.model_dump(mode="json"),
        "texts": dict(sorted(Counter(labels[~away]).items())),
        "losses": losses,
    }
    asked = away & np.isin(labels, model.labels)
    if asked.any():
        scores = model.score(Texts.of([text for text, kept in zip(texts, asked, strict=True) if kept]))
        about["report"] = report(model.labels, list(labels[asked]), scores, recalls)
    save_model(out, model, about)
    return about
