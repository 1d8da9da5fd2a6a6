"""Signal: rank correlations against scipy, published formulas against numpy, classes of histories whose truth is known."""

from __future__ import annotations

import csv
import gzip
import random
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ingot.evals.scores.ranking import decision_accuracy, kendall, pearson, spearman
from ingot.evals.scores.signal import (
    MetricHistory,
    MetricRun,
    last_jitter,
    last_noise,
    order_stability,
    signal,
    signal_to_noise,
)

STEPS = range(100, 1100, 100)


def rising(noise: float, seed: int, model: str = "a", top: float = 0.6) -> MetricRun:
    generator = random.Random(f"{model}{seed}")
    scores = {step: 0.25 + (top - 0.25) * step / 1000 + generator.gauss(0, noise) for step in STEPS}
    return MetricRun(model, seed, scores)


@pytest.mark.parametrize("seed", range(5))
def test_rank_correlations_against_scipy(seed: int) -> None:
    generator = random.Random(seed)
    x = [generator.randint(0, 8) for _ in range(30)]  # with many ties
    y = [each + generator.gauss(0, 3) for each in x]
    both = [generator.randint(0, 4) for _ in x]  # ties on both sides
    assert kendall(x, both) == pytest.approx(stats.kendalltau(x, both).statistic)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)


def test_a_correlation_with_a_constant_is_not_defined() -> None:
    assert (
        spearman([1, 1, 1], [1, 2, 3]) is None and kendall([1, 1, 1], [1, 2, 3]) is None and pearson([1], [1]) is None
    )


def test_noise_and_spread_are_the_published_formulas() -> None:
    runs = [rising(0.01, 0, model, top) for model, top in (("a", 0.5), ("b", 0.55), ("c", 0.7))]
    last = np.array([[run.scores[step] for step in STEPS][-5:] for run in runs])
    assert last_noise(runs[0]) == pytest.approx(np.std(last[0]))
    ends, mean = last.mean(axis=1), last.mean()
    dispersion = max(abs(a - b) for a, b in combinations(ends, 2)) / mean
    assert signal_to_noise(runs) == pytest.approx(dispersion / (np.std(last, axis=1).mean() / mean))
    taus = [
        stats.kendalltau([run.scores[before] for run in runs], [run.scores[after] for run in runs]).statistic
        for before, after in pairwise(STEPS)
    ]
    assert order_stability(runs) == pytest.approx(np.mean(taus))
    assert signal_to_noise(runs[:1]) is None and order_stability(runs[:1]) is None


def test_jitter_is_the_noise_without_the_trend() -> None:
    generator = random.Random(0)
    found = [
        last_jitter(MetricRun("a", 0, {step: 0.01 * step + generator.gauss(0, 0.5) for step in range(5)})) or 0.0
        for _ in range(4000)
    ]
    assert np.sqrt(np.mean(np.square(found))) == pytest.approx(0.5, rel=0.03)
    assert last_jitter(MetricRun("a", 0, {1: 0.1, 2: 0.2, 3: 0.3})) == pytest.approx(0, abs=1e-12)


def test_a_metric_that_rises_above_chance_with_little_noise_is_stable() -> None:
    runs = [rising(0.004, seed) for seed in range(3)]
    found = signal(MetricHistory("quiz/accuracy", runs, chance=0.25, standard_error=0.01))
    assert found.kind == "stable", found
    assert found.monotonic is not None and found.monotonic > 0.95
    last = [run.scores[1000] for run in runs]
    assert found.seed_noise == pytest.approx(np.std(last, ddof=1))
    assert found.seeds == pytest.approx(np.mean(last) / np.std(last, ddof=1))
    turned = MetricRun("a", 0, {s: -v for s, v in runs[0].scores.items()})
    assert signal(MetricHistory("bits", [turned], higher_is_better=False)).kind == "stable"


def test_a_metric_that_stays_at_chance_is_blind() -> None:
    generator = random.Random(1)
    flat = [MetricRun("a", seed, {step: 0.25 + generator.gauss(0, 0.01) for step in STEPS}) for seed in range(3)]
    found = signal(MetricHistory("quiz/accuracy", flat, chance=0.25, standard_error=0.014))
    assert found.kind == "blind" and any("above chance" in reason for reason in found.reasons)
    never = signal(MetricHistory("gsm8k/accuracy", [MetricRun("a", 0, dict.fromkeys(STEPS, 0.0))], chance=0.0))
    assert never.kind == "blind"


def test_a_metric_that_rises_with_much_noise_is_noisy() -> None:
    runs = [rising(0.06, seed, top=0.9) for seed in range(4)]
    found = signal(MetricHistory("quiz/accuracy", runs, chance=0.0))
    assert found.kind == "noisy" and any("seeds" in reason for reason in found.reasons)
    wild = signal(MetricHistory("code/accuracy", runs, chance=0.0, generated=True))
    assert not any("seeds" in reason for reason in wild.reasons)
    swapping = [
        MetricRun(name, 0, {s: 0.3 + s / 5000 + 0.02 * ((s // 100 + place) % 2) for s in STEPS})
        for place, name in enumerate("ab")
    ]
    found = signal(MetricHistory("quiz/accuracy", swapping, chance=0.0))
    assert found.kind == "noisy" and found.ordering == -1.0


def test_too_few_steps_tell_nothing() -> None:
    found = signal(MetricHistory("quiz/accuracy", [MetricRun("a", 0, {1: 0.1, 2: 0.9})]))
    assert found.kind == "unknown" and found.as_json()["reasons"] == ["fewer than 3 steps are measured"]


# decision accuracy of experiments of 150M parameters, as the authors of signal and noise publish it (their data, their models)
PUBLISHED = {"arc_easy": 0.93, "mmlu_fewshot": 0.89, "arc_challenge": 0.83, "hellaswag": 0.74, "piqa": 0.74}
PUBLISHED |= {"commonsense_qa": 0.69, "openbook_qa": 0.65, "winogrande": 0.50, "boolq": 0.48, "gsm8k": 0.46}


def test_decisions_of_real_models(shared_data: Path) -> None:
    """DCLM's models of 412M and 6.9B parameters on the same data sets: which tasks order the data as the larger ones do."""
    with gzip.open(shared_data / "scaling/dclm_model_database.csv.gz", "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def scores(parameters: str, tokens: str, task: str) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for row in rows:
            if (row["params"], row["tokens"]) == (parameters, tokens) and row[task]:
                found.setdefault(row["Dataset"], []).append(float(row[task]))
        return {name: float(np.mean(values)) for name, values in found.items()}

    small, large = ("411616256", "8232325120"), ("6889410560", "137788211200")
    found = {
        task: decision_accuracy(scores(*small, task), scores(*large, task)) or 0.0
        for task in (*PUBLISHED, "lambada_openai", "Core")
    }
    assert min(found[task] for task in ("arc_easy", "arc_challenge", "lambada_openai", "Core")) > 0.8
    assert max(found[task] for task in ("winogrande", "boolq", "gsm8k")) < 0.6  # a coin gets one half
    assert (spearman([found[task] for task in PUBLISHED], list(PUBLISHED.values())) or 0) > 0.7
    core = [scores(*size, "Core") for size in (small, large)]
    both = sorted(core[0].keys() & core[1].keys())
    tau = stats.kendalltau([core[0][name] for name in both], [core[1][name] for name in both]).statistic
    assert found["Core"] == pytest.approx((tau + 1) / 2)  # without ties the two are the same thing


def line(last: float, seed: int = 0) -> MetricRun:
    """A straight line from 0 has no jitter, and binary fractions no rounding."""
    return MetricRun("a", seed, {1: 0.0, 2: last / 2, 3: last})


@pytest.mark.parametrize(
    ("history", "reason", "enough"),
    [
        ({"runs": [MetricRun("a", 0, {1: 0.25, 2: 0.125, 3: 0.5})]}, "Spearman of step and score 0.50", True),
        ({"runs": [line(0.75)], "chance": 0.0, "standard_error": 0.25}, "best is 3.0 noise above chance", True),
        ({"runs": [line(0.5, 0), line(0.75, 1), line(1.0, 2)]}, "rises by 3.0 noise", True),
        ({"runs": [line(4.75, 0), line(5.0, 1), line(5.25, 2)]}, "mean over deviation of seeds 20", False),
        (
            {
                "runs": [
                    MetricRun(name, 0, {1: at, 2: at, 3: at + 1, 4: at + 1}) for name, at in (("a", 0.0), ("b", 0.5))
                ]
            },
            "spread of models over noise 1.0",
            False,
        ),
        (
            {"runs": [MetricRun("a", 0, {1: 0.0, 2: 2.0, 3: 3.0}), MetricRun("b", 0, {1: 1.0, 2: 1.5, 3: 2.0})]},
            "Kendall's tau of models' order 0.00",
            False,
        ),
    ],
)
def test_what_is_just_enough(history: dict[str, Any], reason: str, enough: bool) -> None:
    """The limits of FineTasks and of signal and noise at exactly their numbers: ">= 0.5", ">= 3", "> 20", "> 1", "> 0"."""
    found = signal(MetricHistory("m", **history))
    assert (reason in found.reasons) is not (enough and found.kind != "stable"), found
