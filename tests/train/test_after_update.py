"""What the loop does with a step's record after the update: QK-clip, and the gradient noise scale."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from ingot.optim.noise_scale import noise_and_signal
from ingot.train.losses.terms import CrossEntropy
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.model.tiny import config, random_model
from tests.train.toy import FixedSource, StepSource, loss_and_gradients, make_trainer

THRESHOLD = 0.05


@pytest.mark.parametrize("optimizer", [{"lr": 1e-12}, {"kind": "muon", "lr": 1e-12}])
def test_after_a_step_no_logit_is_above_the_threshold(optimizer: dict[str, object], folder: StageFolder) -> None:
    """The same data twice, with an update that moves nothing: the second time all heads are at most at the threshold."""
    batches, _ = StepSource().batches(0)
    given: dict[str, Any] = {"steps": 2, "optimizer": {**optimizer, "weight_decay": 0.0, "qk_clip": THRESHOLD}}
    model = random_model(config(depth=1))  # a clipped layer would change what later layers see
    make_trainer(folder, source=FixedSource(batches), model=model, **given).run()
    first, second = folder.metrics.read()
    assert first["largest_logit"] > 10 * THRESHOLD and first["clipped_heads"] > 0.5
    assert second["largest_logit"] == pytest.approx(THRESHOLD, rel=1e-4)


def test_a_step_without_qk_clip_does_not_measure_logits(folder: StageFolder) -> None:
    make_trainer(folder, steps=1).run()
    assert "largest_logit" not in folder.metrics.read()[0]


def test_the_noise_scale_is_that_of_the_gradients(folder: StageFolder) -> None:
    """From the gradients of the first micro-batch alone and of the whole step, each computed by a run of its own."""
    batches = list(StepSource().batches(0)[0])[:2]
    model = random_model(config())
    squares = []
    for number, part in enumerate((batches[:1], batches)):
        one = stage_folder(folder.path / f"part-{number}")
        _, gradients = loss_and_gradients(copy.deepcopy(model), [CrossEntropy()], part, one)
        squares.append(sum(float(each.double().square().sum()) for each in gradients.values()))
    sizes = [float(batches[0].token_count), float(sum(batch.token_count for batch in batches))]
    weights = [
        float(batches[0].streams["weight"].sum()),
        float(sum(batch.streams["weight"].sum() for batch in batches)),
    ]
    # a mean over weights, counted in tokens: the loop scales the first pass's share of the step by tokens
    small = squares[0] * (weights[0] / weights[1] * sizes[1] / sizes[0]) ** 2
    noise, signal = noise_and_signal(
        *(torch.tensor(v, dtype=torch.float64) for v in (small, sizes[0], squares[1], sizes[1]))
    )
    whole = stage_folder(folder.path / "whole")
    make_trainer(whole, source=FixedSource(batches), model=model, steps=1, measure_noise=True).run()
    assert whole.metrics.read()[0]["noise_scale"] == pytest.approx(float(noise / signal), rel=1e-4)
