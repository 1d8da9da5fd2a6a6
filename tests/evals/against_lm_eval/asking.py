"""Suites driven by hand: a subject without a model, and what a suite finds in given answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.bases.suite import Measuring, Subject
from ingot.evals.engine.prompt import Form
from ingot.evals.scores.scores import Metric
from ingot.workspace.interrupt import StopSignal


def subject(data: Path | None = None, form: Form = "text", **options: Any) -> Subject:
    """A model that is not there."""
    return Subject("none", form, StopSignal(), data=data, **options)


def evaluated(measuring: Measuring, answers: Sequence[Any]) -> dict[str, Metric]:
    """The metrics that a suite returns when it is given these answers."""
    with pytest.raises(StopIteration) as end:
        measuring.send(answers)
    return {metric.name: metric for metric in end.value.value.metrics}
