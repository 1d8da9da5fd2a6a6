"""Sharded data parallelism trains as one process does: loss, every gradient, the norm, weights after two updates, routers.

The data is 8 rows of uneven documents in micro-batches of 3 rows, so that ranks have different numbers of them and some only
padding. Bounds: what was measured is below 3e-7 for numbers, 3e-6 for gradients after an update (5e-7 before it).
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MLA, MOE, shape
from tests.train.parallel.steps import Case, compare

TIED = {"tied_embeddings": True}
AHEAD = {"multi_token": {"steps": 2, "block": "layer"}}
SHARED_AHEAD = {"multi_token": {"steps": 2, "block": "layer", "shared": True}}
GLOBAL = {
    **MOE,
    "feed_forward": {
        **MOE["feed_forward"],
        "balancers": [{"kind": "quantile"}, {"kind": "loss", "scope": "sequence", "coefficient": 0.01}],
    },
}
OF_TWO = [
    Case("dense", shape(DENSE, layers=2), {}),
    Case("quantiles of all ranks", shape(GLOBAL, layers=2), {}),
    Case("copies only", shape(DENSE, layers=2), {"replicate": 2}),
    Case("one module for all steps ahead", shape(DENSE, layers=2, **TIED, **SHARED_AHEAD), {}),
    Case("recomputed", shape(MOE, layers=2), {}, {"activations": {"keep": "blocks"}}),
    Case("a part is frozen", shape(DENSE, layers=2), {}, {"train_only": ("*.mixer.*", "embedding.*")}),
]
MORE_OF_TWO = [
    Case("mla", shape(MLA, layers=2), {}),
    Case("moe", shape(MOE, layers=2), {}),
    Case("weights kept gathered", shape(MOE, layers=2), {"reshard_after_forward": False}),
]
OF_FOUR = [
    Case("dense", shape(DENSE), {}),
    Case("mla, tied", shape(MLA, layers=2, **TIED), {}),
    Case("moe", shape(MOE, layers=2), {}),
    Case("dense, two copies", shape(DENSE, layers=2), {"replicate": 2}),
    Case("mla, two copies", shape(MLA, layers=2), {"replicate": 2}),
    Case("moe, two copies, tokens ahead", shape(MOE, layers=2, **AHEAD), {"replicate": 2}),
    Case("one row a pass", shape(DENSE, layers=2), {"replicate": 2}, {"rows": 1}),
]
OF_THREE = [Case("nothing is divisible", shape(MOE, layers=2), {})]


@pytest.mark.parametrize(("world", "cases"), first_fast([(2, OF_TWO), (3, OF_THREE), (2, MORE_OF_TWO), (4, OF_FOUR)]))
def test_as_one_process(world: int, cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> None:
    found = compare(cases, world, tmp_path_factory.mktemp("shard") / "store")
    for name, ranks in found.items():
        for rank, worst in enumerate(ranks):
            assert worst["values"] < 1e-6, (name, rank, worst)
            assert worst["gradients"] < 1e-5, (name, rank, worst)
            assert worst["weights"] < 5e-6, (name, rank, worst)
            assert worst["buffers"] == 0, (name, rank, worst)


EXACT_ROUTER = {"feed_forward": {**MOE["feed_forward"], "router": {**MOE["feed_forward"]["router"], "float32": True}}}
HALF = [Case("bfloat16", shape({**MOE, **EXACT_ROUTER}, layers=2), {}, {"dtype": torch.bfloat16, "steps": 1})]


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bfloat16 says so
def test_bfloat16_as_one_process(tmp_path: Path) -> None:
    """Weights are gathered in bfloat16, which one process rounds them to as well; sums and masters stay float32."""
    (ranks,) = compare(HALF, 2, tmp_path / "store").values()
    for worst in ranks:
        assert worst["values"] < 5e-3 and worst["gradients"] < 5e-2 and worst["weights"] < 1e-2, worst
