"""Initial weights are the same in every layout, and no two shards of a parameter are copies of each other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.distributed.tensor import DTensor

from ingot.checkpoints.stored_model import in_memory
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.order import orders, whole
from ingot.model.transformer import Transformer
from ingot.train.layouts.steps import fresh
from ingot.train.parallel.apply import load_shards
from ingot.train.parallel.layout import make_layout
from ingot.train.prepare import prepare_model
from tests.train.parallel.models import DENSE, MOE, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.steps import training

RECURRENT = {
    "mixer": {"kind": "gated_delta", "key_heads": 2, "value_heads": 4, "key_width": 8, "value_width": 8},
    "feed_forward": {"width": 48},
}
LAYOUTS: dict[str, tuple[ModelConfig, dict[str, int]]] = {
    "sharded": (shape(RECURRENT, layers=2, norm={"zero_centred": True}), {"shard": 4}),
    "copies": (shape(DENSE, layers=2, tied_embeddings=True), {"replicate": 2, "shard": 2}),
    "tensor": (shape(DENSE, layers=2), {"tensor": 2, "shard": 2}),
    "experts": (shape(MOE, layers=2), {"shard": 4, "expert": 2}),
}
LOADED, SEED = "loaded", 3


def start(mesh: dict[str, int], config: ModelConfig, fill: Callable[[Transformer], None]) -> dict[str, dict[str, Any]]:
    """Build on the meta device, divide, fill: what this rank holds of each parameter, and all ranks together."""
    device = torch.device("cpu")
    with torch.device("meta"):
        model = Transformer(config)
    options = training(mesh=mesh)
    layout = make_layout(options.mesh, device)
    model = prepare_model(model, options, layout, device, torch.float32, fill)
    assert not any(each.is_meta for each in (*model.parameters(), *model.buffers()))
    row_orders, found = orders(model), dict[str, dict[str, Any]]()
    for name, each in model.named_parameters():
        assert isinstance(each, DTensor), name
        place = each.device_mesh.get_coordinate()
        assert place is not None
        cut = [p for p, placement in zip(place, each.placements, strict=True) if not placement.is_replicate()]
        found[name] = {"here": each.to_local(), "all": whole(each.detach(), row_orders.get(name)), "place": cut}
    found["buffers"] = dict(model.named_buffers())
    return found


def start_all() -> dict[str, dict[str, dict[str, Any]]]:
    started = {
        name: start(mesh, config, lambda each: initialise(each, SEED)) for name, (config, mesh) in LAYOUTS.items()
    }
    config, mesh = LAYOUTS["tensor"]
    stored = in_memory(fresh(config, SEED))
    return {**started, LOADED: start(mesh, config, lambda each: load_shards(each, stored))}


def test_every_layout_starts_alike(tmp_path: Path) -> None:
    ranks = run_ranks(4, start_all, tmp_path / "store")
    for layout, (config, _) in {**LAYOUTS, LOADED: LAYOUTS["tensor"]}.items():
        expected = {name: each.detach().numpy() for name, each in fresh(config, SEED).named_parameters()}
        starts = [rank[layout] for rank in ranks]
        for each in starts:
            assert all(not buffer.any() for buffer in each.pop("buffers").values())
            assert each.keys() == expected.keys()
        compared = 0
        for name, value in expected.items():
            for each in starts:
                assert numpy.array_equal(each[name]["all"], value), (layout, name)
            for one, other in combinations(starts, 2):
                here, there = one[name]["here"], other[name]["here"]
                if one[name]["place"] == other[name]["place"]:
                    assert numpy.array_equal(here, there), (layout, name)  # copies agree
                elif min(len(numpy.unique(here)), len(numpy.unique(there))) > 2:  # not a norm's ones
                    assert here.shape != there.shape or not numpy.array_equal(here, there), (layout, name)
                    compared += 1
        assert compared > 20
