"""A pipeline trains as one process does: loss, every gradient, the norm, weights after three updates, routers.

The data is 8 rows of uneven documents, in 1 to 4 micro-batches. The stages of a pipeline hold different parameters: together they
must have each of the whole model's, and what two of them hold (a tied embedding) must be the same bits on both.
"""

from __future__ import annotations

from typing import Any

import pytest

from ingot.train.layouts.differences import find_differences
from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MLA, MOE, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.steps import Case, run_cases

TIED: dict[str, Any] = {"tied_embeddings": True}
AHEAD: dict[str, Any] = {"multi_token": {"steps": 2, "block": "layer"}}
TWO, FOUR = {"pipeline": 2}, {"pipeline": 4}
INTERLEAVED = {"pipeline": 2, "pipeline_schedule": "interleaved", "pipeline_stages": 2}


def rows(count: int) -> dict[str, Any]:
    """8 rows in micro-batches of `count`."""
    return {"rows": count}


OF_TWO = [
    Case("dense, 1 micro-batch", shape(DENSE), TWO, rows(8)),
    Case("mla, tied, 3", shape(MLA, layers=3, **TIED), TWO, rows(3)),
    Case("moe, ahead, 3", shape(MOE, layers=2, **AHEAD), TWO, rows(3)),
    Case("interleaved, dense, tied, 3", shape(DENSE, layers=5, **TIED), INTERLEAVED, rows(3)),
    Case("recomputed, moe, 4", shape(MOE), INTERLEAVED, {"rows": 2, "activations": {"keep": "blocks"}}),
]
MORE_OF_TWO = [
    Case("dense, 3", shape(DENSE), TWO, rows(3)),
    Case("dense, tied, 4", shape(DENSE, **TIED), TWO, rows(2)),
    Case("moe, 3", shape(MOE), TWO, rows(3)),
    Case("interleaved, moe, 1", shape(MOE), INTERLEAVED, rows(8)),
    Case("interleaved, mla, 4", shape(MLA), INTERLEAVED, rows(2)),
]
OF_FOUR = [
    Case("four ranks, dense, tied, 3", shape(DENSE, **TIED), FOUR, rows(3)),
    Case("four ranks, moe, 8", shape(MOE), FOUR, rows(1)),
    Case("sharded, dense, tied", shape(DENSE, **TIED), {**TWO, "shard": 2}, rows(1)),
    Case("sharded, moe, ahead", shape(MOE, **AHEAD), {**TWO, "shard": 2}, rows(1)),
    Case("sharded, interleaved, moe", shape(MOE), {**INTERLEAVED, "shard": 2}, rows(1)),
    Case("copies, interleaved, mla", shape(MLA), {**INTERLEAVED, "replicate": 2}, rows(1)),
    Case("tensor, dense, tied", shape(DENSE, **TIED), {**TWO, "tensor": 2}, rows(3)),
    Case("tensor, interleaved, moe", shape(MOE), {**INTERLEAVED, "tensor": 2}, rows(3)),
    Case("context, moe", shape(MOE, layers=2), {**TWO, "context": 2}, rows(3)),
    Case("experts, moe", shape(MOE, layers=2), {**TWO, "shard": 2, "expert": 2}, rows(3)),
]


@pytest.mark.parametrize(("world", "cases"), first_fast([(2, OF_TWO), (2, MORE_OF_TWO), (4, OF_FOUR)]))
def test_as_one_process(world: int, cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> None:
    found = run_ranks(world, run_cases, tmp_path_factory.mktemp("pipeline") / "store", cases)
    for case in cases:
        worst = find_differences([each[case.name] for each in found], case.alone())
        assert worst["values"] < 1e-6, (case.name, worst)
        assert worst["gradients"] < 1e-5, (case.name, worst)
        assert worst["weights"] < 5e-6, (case.name, worst)
        assert worst["buffers"] == 0, (case.name, worst)
