"""DPO in float64 is the same in every layout: what differs in float32 is rounding, which β and a difference enlarge.

Rewards are β (log p − log ref). In float32 layouts are some 1e-6 apart after a few steps, here 1e-12. FSDP sums gradients in
float32 whatever the weights are, so sharded ranks agree less after the first update, and exactly before it.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.optim.build import make_optimizer
from ingot.post.data.pairs.pair import PairSource
from ingot.tokens.batch import TokenSequence
from ingot.train.feed import Feed
from ingot.train.layouts.steps import fresh
from ingot.train.losses.preference import Preference
from ingot.train.parallel.layout import make_layout
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective
from ingot.train.prepare import prepare_model
from tests.train.parallel.models import DENSE, VOCABULARY, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.steps import training

MESHES: list[dict[str, int]] = [{"tensor": 2}, {"pipeline": 2}, {"shard": 2}]
BOUNDS = [(1e-12, 1e-12), (1e-12, 1e-12), (1e-12, 1e-6)]  # at the first step, and after updates
PROMPT = 2  # tokens


def pairs() -> list[list[TokenSequence]]:
    """Eight pairs of answers of uneven lengths, with the log-probabilities of an imagined reference."""
    rng, found = random.Random(0), []
    for _ in range(8):
        pair = []
        for side in ("chosen", "rejected"):
            length = rng.randint(4, 14)
            marks = [float(place >= PROMPT) for place in range(length)]
            streams = {"chosen": [0.0] * length, "rejected": [0.0] * length} | {side: marks}
            streams["reference_logprob"] = [rng.uniform(-6, -4) for _ in range(length)]
            pair.append(TokenSequence([rng.randrange(VOCABULARY) for _ in range(length)], streams))
        found.append(pair)
    return found


def train(meshes: list[dict[str, int]]) -> list[list[dict[str, float]]]:
    """Four steps in each mesh: what every step logs."""
    device, told = torch.device("cpu"), []
    for mesh in meshes:
        options = training(mesh=mesh)
        layout = make_layout(options.mesh, device)
        model = fresh(shape(DENSE, 2, initial={"std": 0.2})).double()
        model = prepare_model(model, options, layout, device, torch.float64)
        optimizer, terms = make_optimizer(model, options.optimizer), [Preference()]
        passes = make_passes(model, Objective(terms), device, torch.float64, layout)
        feed = Feed(PairSource(pairs(), 8, 32, 64, 1), terms, layout, 0, device)
        steps: list[dict[str, Any]] = []
        for step in range(4):
            prepared = feed.get(step)
            sums = passes.run(prepared.batches, *prepared.totals(layout, device)[:2])
            passes.add_ranks(sums)
            steps.append({name: float(value) for name, value in sums.parts.items()})
            optimizer.step()
            optimizer.zero_grad()
        told.append(steps)
    return told


@pytest.mark.filterwarnings("ignore:In CPU autocast")
def test_rewards_of_all_layouts_are_those_of_one_process(tmp_path: Path) -> None:
    (alone,) = train([{}])
    assert alone[0]["rejected_reward"] - alone[-1]["rejected_reward"] > 1, "it learns"
    for told in run_ranks(2, train, tmp_path / "store", MESHES):
        for steps, (first, later) in zip(told, BOUNDS, strict=True):
            for number, (row, wanted) in enumerate(zip(steps, alone, strict=True)):
                assert row == pytest.approx(wanted, rel=0, abs=later if number else first), number
