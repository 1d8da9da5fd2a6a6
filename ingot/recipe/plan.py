"""What running a recipe would do: its stages, what they take, how far they are, what they cost. Runs nothing."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ingot.recipe.cost import Cost, stage_costs
from ingot.recipe.folders import input_names
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.work import list_work

ASSUMED_FLOPS_PER_CORE = 15e9
"""float32 matrix products on one core of a server of 2020; `--measure` measures this machine."""
MEASURE_SECONDS = 1.0


@dataclass(frozen=True)
class Machine:
    """How fast this machine multiplies matrices."""

    device: str
    flops_per_second: float
    measured: bool


@dataclass(frozen=True)
class PlannedStage:
    """One line of a plan. `seconds` is what the work took if it is done, else the estimate."""

    name: str
    kind: str
    inputs: dict[str, Any]
    hash: str
    folder: str
    status: str
    seconds: float | None
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True)
class Plan:
    """What a recipe would do on this machine."""

    name: str
    seed: int
    folder: str
    machine: Machine
    stages: tuple[PlannedStage, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


def make_plan(recipe: Recipe, runs: Path = Path("runs"), *, measure: bool = False, table: Table = STAGES) -> Plan:
    """The plan of `recipe`; `measure` takes a second and needs torch."""
    machine = measure_machine() if measure else assume_machine()
    costs = stage_costs(recipe)
    stages = []
    for work in list_work(recipe, runs, table):
        cost = costs.get(work.stage.name, Cost())
        seconds = cost.seconds(machine.flops_per_second) if work.done is None else work.done.seconds
        inputs = input_names(work.stage.inputs)
        stages.append(
            PlannedStage(
                work.stage.name, work.stage.kind, inputs, work.hash, str(work.folder), work.status, seconds, cost
            )
        )
    return Plan(recipe.name, recipe.seed, str(runs / recipe.name), machine, tuple(stages))


def assume_machine() -> Machine:
    """A guess from the number of cores, without torch."""
    cores = usable_cores()
    return Machine(f"CPU, {cores} cores", cores * ASSUMED_FLOPS_PER_CORE, measured=False)


def usable_cores() -> int:
    """The cores that this process may use: fewer than the machine has under taskset or in a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_machine() -> Machine:
    """The speed of float32 matrix products of a training step's size, or of bfloat16 ones on a GPU."""
    import torch

    gpu = torch.cuda.is_available()
    size, dtype = (8192, torch.bfloat16) if gpu else (512, torch.float32)
    device = torch.device("cuda" if gpu else "cpu")
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    float((left @ right).sum())  # the first product pays for the set-up
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < MEASURE_SECONDS:
        float((left @ right)[0, 0])  # reading a value waits for the device
        count += 1
    speed = 2 * size**3 * count / (time.perf_counter() - began)
    name = torch.cuda.get_device_name() if gpu else f"CPU, {torch.get_num_threads()} threads"
    return Machine(name, speed, measured=True)
