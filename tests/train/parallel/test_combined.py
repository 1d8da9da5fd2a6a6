"""Several kinds of parallelism at once compute what one process computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MLA, MOE, shape
from tests.train.parallel.steps import Case, compare
from tests.train.parallel.test_expert import BIASED

CASES = [
    Case("tensor × expert", BIASED, {"tensor": 2, "expert": 2}),
    Case("context × shard, experts over both", shape(MOE, layers=2), {"context": 2, "expert": 4}),
]
MORE_CASES = [  # context × tensor is in test_context.py
    Case("tensor × shard", shape(MLA, layers=2), {"tensor": 2}),
    Case("context × shard", shape(DENSE, layers=2), {"context": 2}),
    Case("context × copies", shape(MLA, layers=2), {"context": 2, "replicate": 2}),
]


@pytest.mark.parametrize("cases", first_fast([CASES, MORE_CASES]), ids=["some", "more"])
def test_as_one_process(cases: list[Case], tmp_path: Path) -> None:
    for name, ranks in compare(cases, 4, tmp_path / "store").items():
        for rank, worst in enumerate(ranks):
            assert worst["values"] < 1e-6, (name, rank, worst)
            assert worst["gradients"] < 1e-5, (name, rank, worst)
            assert worst["weights"] < 5e-6, (name, rank, worst)
            assert worst["buffers"] == 0, (name, rank, worst)
