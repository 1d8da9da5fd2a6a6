"""Chooses few questions of a suite whose mean follows the whole: cheap enough to be asked at every checkpoint.

The answers of several models (or checkpoints) to the whole suite say how hard a question is and how well it tells models apart.
Two ways to choose N questions are tried, and random ones beside them:

    strata    N equal parts by difficulty; of each the question with the largest correlation with the mean of the others
              (item-rest, the point-biserial correlation for right or wrong)
    greedy    one question after another, each the one that brings the subset's mean nearest to the whole's over all models

Both see the models they choose by, so they are judged by others: the models are dealt into folds, each fold is left out once, and
the subset chosen by the rest is measured on it. The way that correlates best with the whole over the models that were left out is
taken; its correlation and error there are written into the file, with those of random questions. The mean of questions that tell
models apart moves more than the whole does: a subset ranks models and shows trends, the error says how far its level may be off.
`{suite: NAME, subset: FILE}` asks them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.evals.scores.compare import distinct_names
from ingot.evals.scores.scores import Metric, load_scores
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.files import write_json
from ingot.workspace.nearest import suggestion

FEWEST_MODELS = 4
FOLDS = 5
RANDOM_DRAWS = 50

Answers = NDArray[np.float64]  # models down, questions across
Way = Callable[[Answers, int], list[int]]


@dataclass(frozen=True)
class Fit:
    """How a way of choosing does on models that it has not seen."""

    correlation: float | None  # of subset and whole, over those models
    error: float  # mean distance of the two


@dataclass(frozen=True)
class Subset:
    """Questions that stand for a suite; `rows` are their places in it."""

    metric: str
    way: str
    rows: tuple[int, ...]
    questions: tuple[str, ...]
    of: int
    models: tuple[str, ...]
    fit: Fit
    random: Fit

    def as_json(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "metric": self.metric,
            "count": len(self.rows),
            "of": self.of,
            "way": self.way,
            "correlation": self.fit.correlation,
            "error": self.fit.error,
            "random": {"correlation": self.random.correlation, "error": self.random.error},
            "models": list(self.models),
            "rows": list(self.rows),
            "questions": list(self.questions),
        }


def choose_subset(folders: Sequence[Path], count: int, metric: str, out: Path, seed: int = 0) -> Subset:
    """Choose `count` questions by the scores of several models on all of them; writes the file."""
    names = distinct_names(folders)
    subset = subset_of(dict(zip(names, map(load_scores, folders), strict=True)), count, metric, seed)
    write_json(out, subset.as_json())
    return subset


def subset_of(scores: Mapping[str, Mapping[str, Metric]], count: int, metric: str, seed: int = 0) -> Subset:
    """The same of scores by model."""
    answers, questions = answers_of(scores, metric)
    if not 1 <= count < len(questions):
        raise RecipeError(f"{count} of {len(questions)} questions are not a subset", place="--count")
    ways: dict[str, Way] = {"strata": by_strata, "greedy": greedily}
    fits = {name: judge(way, answers, count, seed) for name, way in ways.items()}
    best = max(fits, key=lambda name: (fits[name].correlation or -1.0, -fits[name].error))
    rows = ways[best](answers, count)
    return Subset(
        metric,
        best,
        tuple(rows),
        tuple(questions[row] for row in rows),
        len(questions),
        tuple(scores),
        fits[best],
        judge_random(answers, count, seed),
    )


def answers_of(scores: Mapping[str, Mapping[str, Metric]], metric: str) -> tuple[Answers, list[str]]:
    """What every model scored on every question, and the questions' ids: those of the first model, in its order."""
    if len(scores) < FEWEST_MODELS:
        problem = f"a subset is chosen by {FEWEST_MODELS} models or more, given {len(scores)}"
        raise RecipeError(problem, fix="more checkpoints of a training run will do: RUN/eval/history/step-*")
    for name, metrics in scores.items():
        if metric not in metrics:
            raise RecipeError(f"{name} has no {metric}", fix=suggestion(metric, metrics, "metrics there"))
    units = [metrics[metric].units for metrics in scores.values()]
    questions = list(units[0])
    for name, each in zip(scores, units, strict=True):
        if each.keys() != units[0].keys():
            raise ArtifactError(f"{name} was not measured on the same questions as {next(iter(scores))}", place=metric)
    return np.array([[each[question] for question in questions] for each in units], dtype=np.float64), questions


def by_strata(answers: Answers, count: int) -> list[int]:
    """Of each part of the questions, ordered by difficulty, the one that tells models apart best."""
    difficulty = answers.mean(axis=0)
    telling = item_rest(answers)
    order = np.lexsort((np.arange(answers.shape[1]), difficulty))
    return sorted(int(part[np.argmax(telling[part])]) for part in np.array_split(order, count))


def item_rest(answers: Answers) -> Answers:
    """The correlation over models of each question with the mean of all others; 0 where all models do the same."""
    models, questions = answers.shape
    rest = (answers.sum(axis=1, keepdims=True) - answers) / (questions - 1)
    a, b = answers - answers.mean(axis=0), rest - rest.mean(axis=0)
    scale = np.sqrt((a * a).sum(axis=0) * (b * b).sum(axis=0))
    return np.divide((a * b).sum(axis=0), scale, out=np.zeros(questions), where=scale > 1e-12 * models)


def greedily(answers: Answers, count: int) -> list[int]:
    """Each next question is the one with which the mean of those chosen is nearest to the mean of all."""
    whole = answers.mean(axis=1, keepdims=True)
    chosen: list[int] = []
    total = np.zeros((len(answers), 1))
    for number in range(1, count + 1):
        distances = (((total + answers) / number - whole) ** 2).sum(axis=0)
        distances[chosen] = np.inf
        best = int(np.argmin(distances))
        chosen.append(best)
        total += answers[:, [best]]
    return sorted(chosen)


def judge(way: Way, answers: Answers, count: int, seed: int) -> Fit:
    """How a way does on models that are left out."""
    models = np.random.default_rng(seed).permutation(len(answers))
    means = np.zeros(len(answers))
    for left_out in np.array_split(models, min(FOLDS, len(models))):
        seen = np.setdiff1d(models, left_out)
        means[left_out] = answers[left_out][:, way(answers[seen], count)].mean(axis=1)
    return fit_of(means, answers)


def judge_random(answers: Answers, count: int, seed: int) -> Fit:
    """How random questions do: means over many draws."""
    generator = np.random.default_rng(seed)
    draws = [generator.choice(answers.shape[1], count, replace=False) for _ in range(RANDOM_DRAWS)]
    fits = [fit_of(answers[:, draw].mean(axis=1), answers) for draw in draws]
    known = [fit.correlation for fit in fits if fit.correlation is not None]
    return Fit(float(np.mean(known)) if known else None, float(np.mean([fit.error for fit in fits])))


def fit_of(means: Answers, answers: Answers) -> Fit:
    """Correlation and distance of a subset's means and the whole's."""
    whole = answers.mean(axis=1)
    varies = means.std() > 0 and whole.std() > 0
    correlation = float(np.corrcoef(means, whole)[0, 1]) if varies else None
    return Fit(correlation, float(np.abs(means - whole).mean()))


def subset_rows(path: Path, rows: int) -> list[int]:
    """The places of a subset's questions in a suite of so many rows."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        places, size = [int(row) for row in content["rows"]], int(content["of"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        fix = "make one with `ingot eval subset SCORES… --metric NAME --count N --out FILE`"
        raise ArtifactError(f"this is not a file of a subset: {error}", place=str(path), fix=fix) from error
    if size != rows or not all(0 <= place < size for place in places):
        problem = f"the subset was chosen among {size} questions, and the suite has {rows}"
        raise ArtifactError(problem, place=str(path), fix="use the same files, or choose a new subset")
    return places
