"""Checks of the machine and of a recipe before a run: each is ok, warn or fail, with what to do.

The checks are in check_machine.py, stress.py (devices), check_data.py (shards, order, seeds) and check_training.py (sharding,
disk, one real step). `quick` leaves out what takes longer than a second: the stress and the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ingot.planner.check import Check
from ingot.planner.check_machine import (
    check_bf16,
    check_chromium,
    check_disk,
    check_memory,
    check_packages,
    check_python,
    check_torch,
    existing_parent,
    memory_bytes,
)
from ingot.planner.cost import Cost, stage_costs, stage_models
from ingot.planner.hardware import GIB
from ingot.recipe.load import load_recipe
from ingot.recipe.read import Changes
from ingot.recipe.recipe import Recipe
from ingot.recipe.stages import STAGES, Table
from ingot.recipe.work import list_work
from ingot.train.config import TrainingConfig
from ingot.workspace.errors import ArtifactError, RecipeError


def examine_machine(runs: Path = Path("runs")) -> list[Check]:
    """Everything about the machine that a run depends on."""
    checks: list[Callable[[], Check]] = [check_python, check_packages, check_torch, check_bf16, check_memory]
    return [*(check() for check in checks), check_disk(runs), check_chromium()]


def examine_recipe(
    path: Path, changes: Changes = (), runs: Path = Path("runs"), table: Table = STAGES, *, quick: bool = False
) -> Iterator[Check]:
    """Whether a recipe can run here, check after check, the quick ones first."""
    try:
        recipe = load_recipe(path, changes, table)
        works = list_work(recipe, runs, table)
    except RecipeError as error:
        yield Check("recipe", "fail", str(error), "put the recipe right")
        return
    left = [work for work in works if work.done is None]
    text = f"{recipe.name}: {len(works)} stages, {len(works) - len(left)} finished in {runs / recipe.name}"
    yield Check("recipe", "ok", text)
    yield check_stages(recipe, table)
    if not any(isinstance(stage.config, TrainingConfig) for stage in recipe.stages):
        return
    from ingot.planner.check_data import check_data  # here, because they import torch
    from ingot.planner.check_training import check_checkpoints, check_sharding, check_step

    try:
        costs, models = stage_costs(recipe, look=True), stage_models(recipe, look=True)
    except ArtifactError as error:
        yield Check("recipe inputs", "fail", f"{error.place}: {error.problem}", error.fix)
        return
    yield from check_sharding(works, models)
    yield from check_needs(costs)
    disk = check_checkpoints(works, costs, models, existing_parent(runs))
    if disk is not None:
        yield disk
    yield from check_data(recipe, works)
    if quick:
        return
    from ingot.planner.stress import stress_devices

    yield from stress_devices()
    yield check_step(works, models, costs)


def check_stages(recipe: Recipe, table: Table) -> Check:
    """Whether the code of every stage can be imported here."""
    for kind in dict.fromkeys(stage.kind for stage in recipe.stages):
        try:
            _ = table.find(kind).run  # imports it
        except ImportError as error:
            return Check("stages", "fail", f"{kind} cannot be imported: {error}", "install what is missing")
    return Check("stages", "ok", "the code of every stage can be imported")


def check_needs(costs: dict[str, Cost]) -> Iterator[Check]:
    """This machine's memory against the stage that takes most; GPUs are looked at by the step that is tried on them."""
    known = {name: cost for name, cost in costs.items() if cost.memory_bytes is not None}
    if not known:
        return
    largest = max(known, key=lambda name: known[name].memory_bytes or 0)
    wanted, total = known[largest].memory_bytes or 0, memory_bytes()
    text = f"{largest} takes about {wanted / GIB:.2f} GiB while it trains on a CPU"
    if total is not None and wanted > total:
        fix = f"lower {largest}.micro_batch_tokens or the model's size; for GPUs see ingot plan --gpus"
        yield Check("recipe memory", "warn", f"{text}, of {total / GIB:.1f}", fix)
    else:
        yield Check("recipe memory", "ok", text)
