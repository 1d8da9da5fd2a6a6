"""Adapters in every layout of ranks: losses, gradients of every A and B, and weights after two steps are those of one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.train.layouts.differences import find_differences
from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MLA, MOE, shape
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.steps import Case, run_cases
from tests.train.parallel.test_tensor import RICH


def case(name: str, block: dict[str, Any], mesh: dict[str, Any], **options: Any) -> Case:
    changes = {"lora": {"rank": 4, "alpha": 8, **options}, "steps": 2}
    return Case(name, shape(block, layers=2, tied_embeddings=block is RICH), mesh, changes)


TWO = [
    case("tensor, biases, norms over all heads, a gate, tied embeddings", RICH, {"tensor": 2}, train_rows=(3, 90)),
    case("tensor, dropout of what all ranks read", DENSE, {"tensor": 2}, dropout=0.3, layers=("q_proj", "up_proj")),
    case("tensor, int4", DENSE, {"tensor": 2}, base="int4", layers=("q_proj", "k_proj", "o_proj")),
    case("pipeline, tied embeddings", RICH, {"pipeline": 2}, train_rows=(3, 90)),
    case("shard, nf4", DENSE, {"shard": 2}, base="nf4"),
    case("context", DENSE, {"context": 2}),
]
TWO_MORE = [
    case("tensor, a mixture", MOE, {"tensor": 2}),
    case("tensor, latent attention", MLA, {"tensor": 2}),
    case("tensor", DENSE, {"tensor": 2}),
    case("tensor, some layers", DENSE, {"tensor": 2}, layers=("v_proj", "o_proj", "up_proj")),
    case("tensor, nf4", DENSE, {"tensor": 2}, base="nf4"),
    case("pipeline", DENSE, {"pipeline": 2}),
    case("pipeline, nf4", DENSE, {"pipeline": 2}, base="nf4"),
    case("expert", MOE, {"expert": 2}),
]
FOUR = [
    case("tensor × shard", MLA, {"tensor": 2, "shard": 2}),
    case("tensor × shard, rows", RICH, {"tensor": 2, "shard": 2}, train_rows=(3, 90)),
    case("tensor × pipeline, nf4", DENSE, {"tensor": 2, "pipeline": 2}, base="nf4"),
    case("tensor × expert", MOE, {"tensor": 2, "expert": 2}),
    case("pipeline × expert", MOE, {"pipeline": 2, "expert": 2}),
    case("copies × shard, nf4", DENSE, {"replicate": 2, "shard": 2}, base="nf4"),
]


def check(cases: list[Case], world: int, store: Path) -> None:
    found = run_ranks(world, run_cases, store, cases)
    for each in cases:
        worst = find_differences([rank[each.name] for rank in found], each.alone())
        assert worst["values"] < 1e-6, (each.name, worst)
        assert worst["gradients"] < 1e-5, (each.name, worst)
        assert worst["weights"] < 5e-6, (each.name, worst)


@pytest.mark.parametrize("cases", first_fast([TWO, TWO_MORE]), ids=["some", "more"])
def test_two_processes_as_one(cases: list[Case], tmp_path: Path) -> None:
    check(cases, 2, tmp_path / "store")


@pytest.mark.slow
def test_four_processes_as_one(tmp_path: Path) -> None:
    check(FOUR, 4, tmp_path / "store")
