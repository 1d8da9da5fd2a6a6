"""Two steps of training in any layout, on the CPU, as tests name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ingot.model.config import ModelConfig
from ingot.train.config import TrainingConfig
from ingot.train.layouts.differences import compare_numbers
from ingot.train.layouts.steps import Numbers, train_steps
from tests.train.parallel.ranks import run_ranks


def training(**changes: Any) -> TrainingConfig:
    optimizer = {
        "lr": 0.01,
        "epsilon": 1e-4,
    }  # a larger ε than usual: it does not blow up the last bit of small gradients
    parts = {"steps": 2, "sequence_length": 32, "precision": "float32", "device": "cpu", "optimizer": optimizer}
    return TrainingConfig.model_validate({**parts, **changes})


def train(config: ModelConfig, mesh: dict[str, Any] | None = None, rows: int = 3, **changes: Any) -> Numbers:
    """The numbers of this rank; `avoid` and `dtype` are those of `train_steps`."""
    avoid, dtype = changes.pop("avoid", ()), changes.pop("dtype", torch.float32)
    return train_steps(config, training(mesh=mesh or {}, **changes), dtype, rows=rows, avoid=avoid)


@dataclass(frozen=True)
class Case:
    """A model and a layout of it; `changes` are those of `train`."""

    name: str
    model: ModelConfig
    mesh: dict[str, Any]
    changes: dict[str, Any] = field(default_factory=dict)

    def alone(self) -> Numbers:
        """What one process computes: the same for all cases that differ in their layout only."""
        key = f"{self.model.model_dump_json()} {sorted({'rows': 3, **self.changes}.items())}"
        if key not in _alone:
            _alone[key] = train(self.model, **self.changes)
        return _alone[key]


_alone: dict[str, Numbers] = {}


def run_cases(cases: Sequence[Case]) -> dict[str, Numbers]:
    """Several cases one after the other in the same processes, which take longer to start than to train."""
    return {case.name: train(case.model, case.mesh, **case.changes) for case in cases}


def compare(cases: Sequence[Case], world: int, store: Path) -> dict[str, list[dict[str, float]]]:
    """The differences from one process of every rank, by case."""
    found = run_ranks(world, run_cases, store, cases)
    return {case.name: [compare_numbers(each[case.name], case.alone()) for each in found] for case in cases}
