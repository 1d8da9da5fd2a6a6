"""A divided model says of sequences what the whole one says, in every layout; so do its frozen copy and weights that it kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import pytest
import torch
from torch import Tensor

from ingot.model.config import ModelConfig
from ingot.post import policy
from ingot.post.processes import Processes
from ingot.post.scorer import Scorer
from ingot.tokens.batch import TokenSequence
from ingot.train.layouts.steps import fresh
from ingot.train.parallel.apply import local_parts, whole_weights
from ingot.train.parallel.layout import make_layout
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective, Passes
from ingot.train.prepare import prepare_model
from ingot.train.reference import FrozenModel, KeptWeights
from tests.post.making import random_tokens
from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MOE, VOCABULARY, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.steps import training

CAPACITY, TEMPERATURE, FACTOR, ROWS = 40, 0.7, 1.25, 4
VALUE: dict[str, Any] = {"heads": ("value",)}
Case = tuple[ModelConfig, dict[str, Any]]
CASES: list[Case] = [
    (shape(DENSE, layers=2, **VALUE), {"shard": 2, "tensor": 2}),
    (shape(DENSE, layers=2, **VALUE), {"pipeline": 2, "context": 2}),
]
MORE_CASES: list[Case] = [
    (shape(MOE, layers=2, **VALUE), {"shard": 2, "expert": 2, "replicate": 2}),
    (shape(MOE, layers=4, **VALUE), {"pipeline": 2, "pipeline_schedule": "interleaved", "pipeline_stages": 2}),
    (shape(DENSE, layers=2, **VALUE), {"context": 4, "context_method": "ring"}),
]
Said = tuple[list[list[float]], ...]


def texts() -> list[TokenSequence]:
    """More rows than one pass takes, in an odd number of passes; the last sequence is of one pass by itself."""
    generator = torch.Generator().manual_seed(1)
    lengths = [*[41] * (2 * ROWS + 1), 2, 3, 17, 30, 5]
    return [TokenSequence(random_tokens(length, VOCABULARY, generator)) for length in lengths]


def said(passes: Passes, processes: Processes) -> Said:
    scorer = Scorer(passes, processes, CAPACITY)
    with patch.object(policy, "ROWS", ROWS):  # of a pass
        logprobs, entropies = scorer.logprobs_and_entropies(texts(), TEMPERATURE)
        # fewer than ranks, and a row that they cannot divide evenly
        (alone,) = scorer.logprobs(texts()[-2:-1], TEMPERATURE)
        assert alone == pytest.approx(logprobs[-2], abs=1e-5)
        return logprobs, entropies, scorer.values("value", texts())


@torch.no_grad()
def divided(cases: list[Case]) -> list[dict[str, Any]]:
    """Of every case what is said by the model, and after its weights have changed by it, by its copy, by its old weights."""
    found: list[dict[str, Any]] = []
    for config, mesh in cases:
        options, device = training(mesh=mesh), torch.device("cpu")
        layout = make_layout(options.mesh, device)
        model = prepare_model(fresh(config), options, layout, device, torch.float32)
        processes = Processes(layout)
        passes = make_passes(model, Objective(()), device, torch.float32, layout)
        made: dict[str, Any] = {"start": said(passes, processes)}
        frozen, kept = FrozenModel(passes), KeptWeights(model)
        torch._foreach_mul_(local_parts(model), FACTOR)
        made["moved"] = said(passes, processes)
        made["frozen"] = said(frozen.passes, processes)
        with kept.in_place():
            made["kept"] = said(passes, processes)
        made["again"] = said(passes, processes)
        frozen.replace()
        made["replaced"] = said(frozen.passes, processes)
        made["weights"] = {name: each.float() for name, each in whole_weights(model, layout, torch.bfloat16)}
        found.append(made)
    return found


def expected(config: ModelConfig) -> tuple[Said, Said, dict[str, Tensor]]:
    model = fresh(config)
    passes = make_passes(model, Objective(()), torch.device("cpu"), torch.float32)
    start = said(passes, Processes())
    torch._foreach_mul_(local_parts(model), FACTOR)
    return start, said(passes, Processes()), model.state_dict()


def distance(one: Said, two: Said) -> float:
    pairs = zip((row for part in one for row in part), (row for part in two for row in part), strict=True)
    return max(float(numpy.abs(numpy.subtract(a, b)).max()) for a, b in pairs)


@pytest.mark.parametrize("cases", first_fast([CASES, MORE_CASES]), ids=["some", "more"])
def test_as_the_whole_model(cases: list[Case], tmp_path: Path) -> None:
    ranks = run_ranks(4, divided, tmp_path / "store", cases)
    for place, (config, _) in enumerate(cases):
        start, later, state = expected(config)
        assert distance(start, later) > 0.1, "the weights have moved"
        for made in (each[place] for each in ranks):
            wanted = {"start": start, "moved": later, "frozen": start, "kept": start, "again": later, "replaced": later}
            assert {name: distance(made[name], each) < 2e-5 for name, each in wanted.items()} == dict.fromkeys(
                wanted, True
            )
            assert made["again"] == made["moved"], "to the bit"
            assert made["weights"].keys() == state.keys()
            for name, value in state.items():
                numpy.testing.assert_array_equal(made["weights"][name], value.bfloat16().float().numpy(), err_msg=name)
