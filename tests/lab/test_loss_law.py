"""What a budget buys, against scipy's minimiser over sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ingot.lab.loss_law import LossLaw, Model

REFIT = LossLaw(1.8172, 482.01, 2085.43, 0.3478, 0.3658)  # arXiv 2404.10102
LAWS = [REFIT, LossLaw(1.69, 406.4, 410.7, 0.34, 0.28), LossLaw(2.0, 25.0, 9e4, 0.2, 0.6)]
BUDGETS = [1e17, 1e21, 5.76e23]


def searched(law: LossLaw, flops: float, served: float) -> float:
    """The best ln N by a search that knows only the loss and the bill."""

    def loss(log_size: float) -> float:
        size = math.exp(log_size)
        tokens = (flops - 2 * size * served) / (6 * size)
        return law.E + law.A / size**law.alpha + law.B / tokens**law.beta

    high = math.log(flops / 2 / served) - 1e-9 if served else math.log(flops / 6)
    coarse = np.linspace(high - 40, high, 2001)
    middle = int(np.argmin([loss(each) for each in coarse]))
    bracket = (float(coarse[max(middle - 1, 0)]), float(coarse[min(middle + 1, 2000)]))
    return float(minimize_scalar(loss, bounds=bracket, method="bounded", options={"xatol": 1e-10}).x)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("flops", BUDGETS)
def test_best_is_the_minimum_that_a_search_finds(law: LossLaw, flops: float) -> None:
    best = law.best(flops)
    # a search by values of the loss sees a minimum to the root of its rounding
    assert math.log(best.parameters) == pytest.approx(searched(law, flops, 0), abs=1e-5)
    assert 6 * best.parameters * best.tokens == pytest.approx(flops, rel=1e-12)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("served", [1e9, 1e12, 1e15])
def test_best_to_serve_is_the_minimum_that_a_search_finds(law: LossLaw, served: float) -> None:
    best = law.best_to_serve(5.76e23, served)
    assert math.log(best.parameters) == pytest.approx(searched(law, 5.76e23, served), abs=1e-5)
    assert 6 * best.parameters * best.tokens + 2 * best.parameters * served == pytest.approx(5.76e23, rel=1e-9)
    assert best.parameters < law.best(5.76e23).parameters


def test_exponent_is_the_slope_of_the_best_size() -> None:
    small, large = REFIT.best(1e20), REFIT.best(1e21)
    assert math.log10(large.parameters / small.parameters) == pytest.approx(REFIT.size_exponent, rel=1e-12)
    assert REFIT.size_exponent == pytest.approx(0.513, abs=5e-4)  # as that paper has it


def test_a_given_ratio_spends_the_budget_and_is_worse_than_the_best() -> None:
    model = REFIT.at_ratio(1e21, 400)
    assert model == Model(model.parameters, 400 * model.parameters, REFIT.loss(model.parameters, model.tokens))
    assert 6 * model.parameters * model.tokens == pytest.approx(1e21, rel=1e-12)
    assert model.loss > REFIT.best(1e21).loss
