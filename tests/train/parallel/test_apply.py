"""A whole copy of a divided model has its weights and buffers bit for bit, on every rank and in every layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.model.config import ModelConfig
from ingot.train.layouts.steps import fresh
from ingot.train.parallel.apply import gather_weights
from ingot.train.parallel.layout import make_layout
from ingot.train.prepare import prepare_model
from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MOE, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.steps import training

TIED = shape(MOE, tied_embeddings=True, multi_token={"steps": 1, "block": "layer"})
CASES: list[tuple[ModelConfig, dict[str, Any]]] = [
    (shape(DENSE, layers=1), {"tensor": 2}),
    (shape(MOE, layers=1), {"expert": 2, "replicate": 2}),
    (TIED, {"pipeline": 2, "tensor": 2, "pipeline_schedule": "interleaved", "pipeline_stages": 2}),
]
MORE_CASES = [(TIED, {"pipeline": 2})]


def gathered(cases: list[tuple[ModelConfig, dict[str, Any]]]) -> list[list[str]]:
    """For every case the tensors of the copy that are not those of the model."""
    device, wrong = torch.device("cpu"), []
    for config, mesh in cases:
        options = training(mesh=mesh)
        layout = make_layout(options.mesh, device)
        assert layout is not None
        model, copy, expected = fresh(config), fresh(config, seed=4), fresh(config)
        for each in (model, expected):
            for number, buffer in enumerate(each.buffers()):
                buffer.fill_(number + 0.5)
        model = prepare_model(model, options, layout, device, torch.float32)
        gather_weights(model, copy, layout)
        found = copy.state_dict()
        wrong.append([name for name, value in expected.state_dict().items() if not torch.equal(found[name], value)])
    return wrong


@pytest.mark.parametrize("cases", first_fast([CASES, MORE_CASES]), ids=["some", "more"])
def test_as_the_model_was_before_it_was_divided(
    cases: list[tuple[ModelConfig, dict[str, Any]]], tmp_path: Path
) -> None:
    assert run_ranks(4, gathered, tmp_path / "store", cases) == [[[]] * len(cases)] * 4
