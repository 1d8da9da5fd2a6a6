"""The draw of plain rows against its definition in numpy and float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ingot.inference.controls import Controls
from ingot.inference.draw import draw
from ingot.inference.sampling import Sampling
from ingot.kernels.head.uniform import uniform

CPU = torch.device("cpu")


def controls_of(temperatures: list[float], size: int) -> Controls:
    return Controls([Sampling(temperature=value, seed=seed) for seed, value in enumerate(temperatures)], CPU, size)


@pytest.mark.parametrize("size", [1, 7, 512, 513, 3000])
def test_like_the_definition(size: int) -> None:
    temperatures = [0.0, 1.0, 0.3, 2.5] * 25
    controls = controls_of(temperatures, size)
    logits = torch.randn(len(temperatures), size, generator=torch.Generator().manual_seed(size)) * 3
    steps = torch.arange(len(temperatures))
    drawn = draw(logits, controls, steps)
    ids, logprobs = drawn.ids_B, drawn.logprobs_B
    numbers = uniform(controls.streams_B, steps).numpy()
    for row, temperature in enumerate(temperatures):
        x = logits[row].double().numpy() / (temperature or 1.0)
        weights = np.exp(x - x.max())
        wanted = int(x.argmax())
        if temperature:
            wanted = int(np.searchsorted(weights.cumsum(), numbers[row] * weights.sum(), side="right"))
        assert ids[row] == wanted
        assert logprobs[row].item() == pytest.approx(math.log(weights[wanted] / weights.sum()), abs=2e-6)


def test_every_token_is_drawn_as_often_as_it_should() -> None:
    size, rows = 5, 20_000
    logits = torch.tensor([1.0, -1.0, 0.5, -math.inf, 0.0])
    controls = Controls([Sampling(seed=seed) for seed in range(rows)], CPU, size)
    ids = draw(logits.repeat(rows, 1), controls, torch.zeros(rows, dtype=torch.int64)).ids_B
    counts = torch.bincount(ids, minlength=size).double()
    expected = logits.double().softmax(-1) * rows
    assert counts[3] == 0
    assert (
        (counts - expected)[[0, 1, 2, 4]] ** 2 / expected[[0, 1, 2, 4]]
    ).sum() < 16.3  # chi-square, 3 degrees, 0.1 %


def test_rows_without_a_distribution() -> None:
    logits = torch.zeros(5, 600)
    logits[0, 599], logits[1, 3], logits[2, 3] = math.nan, math.inf, -math.inf
    logits[3] = -math.inf
    logits[4, 77] = logits[4, 500] = 2.0  # the first of the likeliest
    drawn = draw(logits, controls_of([0.0, 1.0, 0.0, 1.0, 0.0], 600), torch.zeros(5, dtype=torch.int64))
    ids, logprobs = drawn.ids_B, drawn.logprobs_B
    assert logprobs.isnan().tolist() == [True, True, False, True, False]
    assert ids[2] == 0 and ids[4] == 77


def test_one_logit_that_is_no_number_is_seen_wherever_it_is() -> None:
    logits = torch.randn(600, 600, generator=torch.Generator().manual_seed(2))
    logits.diagonal().fill_(math.nan)
    drawn = draw(logits, controls_of([0.0, 1.0] * 300, 600), torch.zeros(600, dtype=torch.int64))
    assert drawn.logprobs_B.isnan().all()


def test_neighbours_change_nothing() -> None:
    """A plain row in a batch with one that truncates: exactly as alone, though the other takes another path."""
    logits = torch.randn(2, 700, generator=torch.Generator().manual_seed(1))
    both = [Sampling(seed=1, temperature=0.8), Sampling(seed=2, top_k=5)]
    steps = torch.tensor([3, 4])
    together = draw(logits, Controls(both, CPU, 700), steps)
    alone = draw(logits[:1], Controls(both[:1], CPU, 700), steps[:1])
    assert together.ids_B[0] == alone.ids_B[0] and together.logprobs_B[0] == alone.logprobs_B[0]
    assert together.ids_B[1] in logits[1].topk(5).indices
