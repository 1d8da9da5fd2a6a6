"""Experts divided over ranks compute what one process computes, wherever the tokens have to travel."""

from __future__ import annotations

import pytest

from tests.slow import first_fast
from tests.train.parallel.models import MOE, shape
from tests.train.parallel.steps import Case, compare

PLAIN = shape(MOE, layers=2)
BIASED = shape(
    {
        **MOE,
        "feed_forward": {**MOE["feed_forward"], "expert": {"width": 16, "bias": True, "gated": False}, "latent": 12},
    },
    layers=2,
)
WEIGHED = shape(
    {**MOE, "feed_forward": {**MOE["feed_forward"], "router": {"score": "sigmoid_input"}, "balancers": []}}, layers=2
)
FIRST, LAST = range(4), range(4, 8)
OF_TWO = [
    Case("biases, ungated, in a latent", BIASED, {"expert": 2}),
    Case("weights on the input", WEIGHED, {"expert": 2}),
    Case("no token wants the second rank's", PLAIN, {"expert": 2}, {"avoid": LAST}),
]
MORE_OF_TWO = [
    Case("two of two", PLAIN, {"expert": 2}),
    Case("no token wants the first rank's", PLAIN, {"expert": 2}, {"avoid": FIRST}),
]
OF_FOUR = [
    Case("two, sharded by two", PLAIN, {"expert": 2}),
    Case("two, two copies", PLAIN, {"expert": 2, "replicate": 2}),
    Case("four", BIASED, {"expert": 4}),
    Case("four, three idle", PLAIN, {"expert": 4}, {"avoid": range(2, 8)}),
]


@pytest.mark.parametrize(("world", "cases"), first_fast([(2, OF_TWO), (2, MORE_OF_TWO), (4, OF_FOUR)]))
def test_as_one_process(world: int, cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> None:
    found = compare(cases, world, tmp_path_factory.mktemp("expert") / "store")
    for name, ranks in found.items():
        for rank, worst in enumerate(ranks):
            assert worst["values"] < 1e-6, (name, rank, worst)
            assert worst["gradients"] < 1e-5, (name, rank, worst)
            assert worst["weights"] < 5e-6, (name, rank, worst)
            assert worst["buffers"] == 0, (name, rank, worst)
