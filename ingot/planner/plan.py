"""The plan of a recipe (`ingot plan`): its stages, their inputs, progress and cost. Runs nothing.

On a CPU the costs are cost.py's. On GPUs (asked for, or found on this machine) each training stage is placed (placement.py):
with a number of devices the best layout is searched, without one the recipe's own mesh is judged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.planner.cost import Cost, role_models, stage_costs, stage_models
from ingot.planner.published import PublishedRun, published
from ingot.recipe.folders import input_names
from ingot.recipe.recipe import FromPath, Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.work import list_work
from ingot.train.config import TrainingConfig
from ingot.train.hardware import cpu_name
from ingot.workspace.errors import RecipeError
from ingot.workspace.outside import without_paths
from ingot.workspace.stage import Stage

if TYPE_CHECKING:
    from ingot.model.config import ModelConfig
    from ingot.planner.compare import RunComparison
    from ingot.planner.placement import Placement

ASSUMED_FLOPS_PER_CORE = 15e9
"""float32 matrix products on one core of a server of 2020; `--measure` measures this machine."""
MEASURE_SECONDS = 1.0
DOES_NOT_FIT = "does not fit: fewer micro_batch_tokens, activations: { keep: blocks }, or more devices"


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
    placement: Placement | None = None
    problem: str | None = None

    @property
    def gpu_hours(self) -> float | None:
        """Hours of all devices together; None on a CPU, or where the time is unknown."""
        return None if self.placement is None or self.seconds is None else self.seconds * self.placement.gpus / 3600

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        placement = None if self.placement is None else self.placement.as_json()
        return {**asdict(replace(self, placement=None)), "placement": placement, "gpu_hours": self.gpu_hours}


@dataclass(frozen=True)
class Plan:
    """The plan of a recipe on this machine."""

    name: str
    seed: int
    folder: str
    machine: Machine
    stages: tuple[PlannedStage, ...]
    price: float | None = None
    published: PublishedRun | None = None
    comparison: RunComparison | None = None  # the estimate compared with the published run, on the same device
    absent: tuple[str, ...] = ()  # inputs given as paths that do not exist yet

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {**asdict(replace(self, stages=())), "stages": [stage.as_json() for stage in self.stages]}


def make_plan(
    recipe: Recipe,
    runs: Path = Path("runs"),
    *,
    measure: bool = False,
    gpu: str | None = None,
    gpus: int | None = None,
    price: float | None = None,
    table: Table = STAGES,
) -> Plan:
    """The plan of `recipe`, for GPUs of a kind and number if given; `measure` takes a second. `price` is per GPU-hour."""
    gpu = gpu or ("h100" if gpus is not None else None) or this_gpu()
    if price is not None and gpu is None:
        raise RecipeError("a price of GPU-hours, and there is no GPU here", place="--price", fix="name one: --gpu h100")
    machine = measure_machine() if measure else assume_machine()
    costs, models = stage_costs(recipe, table=table), stage_models(recipe, table=table)
    stages = []
    for work in list_work(recipe, runs, table):
        cost = costs.get(work.stage.name, Cost())
        seconds = cost.seconds(machine.flops_per_second) if gpu is None else None
        placement, problem = None, None
        if gpu is not None and isinstance(work.stage.config, TrainingConfig):
            product = machine.flops_per_second if machine.measured else None
            used = role_models(work.stage, recipe, models)
            placement, problem = place(work.kind, work.stage.config, used, cost, gpu, gpus, product)
            if placement is not None and placement.tokens_per_second and cost.tokens:
                seconds = cost.tokens / placement.tokens_per_second / placement.gpus
        stages.append(
            PlannedStage(
                name=work.stage.name,
                kind=str(without_paths(work.stage.kind)),
                inputs=input_names(work.stage.inputs),
                hash=work.hash,
                folder=str(work.folder),
                status=work.status,
                seconds=seconds if work.done is None else work.done.seconds,
                cost=cost,
                placement=placement,
                problem=problem,
            )
        )
    known = published(recipe.name) if gpu is not None else None
    comparison = compare_with(known, stages, recipe, models, machine) if known is not None else None
    sources = [source for stage in recipe.stages for _, source in stage.sources() if isinstance(source, FromPath)]
    absent = tuple(dict.fromkeys(str(source.path) for source in sources if not source.path.exists()))
    folder = str(runs / recipe.name)
    return Plan(recipe.name, recipe.seed, folder, machine, tuple(stages), price, known, comparison, absent)


def compare_with(
    run: PublishedRun,
    stages: Sequence[PlannedStage],
    recipe: Recipe,
    models: Mapping[str, ModelConfig | None],
    machine: Machine,
) -> RunComparison | None:
    """The stage with most tokens compared with the published run; None where they cannot be compared."""
    from ingot.planner.compare import compare
    from ingot.planner.shape import shape_of

    stage = max(stages, key=lambda one: one.cost.tokens or 0)
    config, model = recipe.stage(stage.name).config, models.get(stage.name)
    if stage.placement is None or model is None or not isinstance(config, TrainingConfig) or not config.counts_tokens:
        return None
    product = machine.flops_per_second if machine.measured else None
    return compare(stage.name, config, shape_of(model), stage.placement, run, product)


def place(
    kind: Stage,
    config: TrainingConfig,
    models: Mapping[str, ModelConfig | None],
    cost: Cost,
    gpu: str,
    gpus: int | None,
    product: float | None,
) -> tuple[Placement | None, str | None]:
    """The placement of a stage, and the problem with it; `product` is a measured speed of matrix products to use."""
    from ingot.planner.hardware import find_gpu, reached
    from ingot.planner.memory import step_rows
    from ingot.planner.placement import best, devices, first_fit, judge, resolve, why_none
    from ingot.planner.shape import shape_of
    from ingot.train.parallel.divisible import find_indivisible

    device, model = find_gpu(gpu), models["checkpoint"]
    if model is None or cost.flops_per_token is None:
        return None, "its model lies in a checkpoint or takes its vocabulary from a tokenizer on disk: not known here"
    shape, kernels, rows = shape_of(model), reached(device, product), step_rows(config)
    if gpus is not None and rows is not None:
        found = best(model, shape, config, gpus, device, kernels, cost.flops_per_token)
        return found, why_none(model, config, gpus) if found is None else None
    mesh = resolve(config.mesh, gpus)
    held = kind.memory(config, models, devices(mesh) if gpus is None else gpus, device.memory)
    if held is None:
        unknown = " and ".join(role for role, one in models.items() if one is None)
        return None, f"its {unknown} lies in a checkpoint on disk: its memory is not known here"
    if gpus is not None:
        found = first_fit(model, shape, config, gpus, device, kernels, cost.flops_per_token, held)
        return found, None if found.fits else why_not(found)
    broken = find_indivisible(model, mesh, sequence_length=config.sequence_length, rows_per_step=rows)
    if broken:
        return None, "; ".join(f"{one.problem}: {one.fix}" for one in broken)
    judged = judge(shape, config, mesh, device, kernels, cost.flops_per_token, held)
    return judged, None if judged.fits else why_not(judged)


def why_not(placement: Placement) -> str:
    """Advice for a stage that does not fit. More devices divide the training, but not what each of them samples with."""
    held = placement.memory
    whole = {"sampler": held.sampler, "teacher": held.teacher, "cache": held.cache}
    if sum(whole.values()) < held.total / 2:
        return DOES_NOT_FIT
    largest = max(whole, key=lambda name: whole[name])
    fix = "a smaller sequence_length, fewer samples a step" if largest == "cache" else "larger devices, a smaller model"
    return f"does not fit: each device holds its {largest} whole, {whole[largest] / 1024**3:.0f} GiB: {fix}"


def this_gpu() -> str | None:
    """The kind of this machine's GPU, if it has one whose figures are known."""
    import torch

    from ingot.planner.hardware import find_gpu

    if not torch.cuda.is_available():
        return None
    try:
        return find_gpu(torch.cuda.get_device_name()).name
    except RecipeError:
        return None


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
    name = torch.cuda.get_device_name() if gpu else cpu_name()
    return Machine(name, speed, measured=True)
