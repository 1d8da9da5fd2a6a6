"""Checks, when a recipe is loaded, that the checkpoint of each `from_step` will exist.

A stage writes a checkpoint at multiples of `every`, and at its end if that one is kept. Multiples of `keep_every` stay after the
stage and, with `keep_best`, one that only the run knows: any step that is written may be it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ingot.recipe.declare import Declared
from ingot.recipe.problems import Problems
from ingot.recipe.recipe import FromPath, FromStage, Inputs
from ingot.train.config import TrainingConfig

STEP, COPIES = "steps/step-{:07d}", "steps/copies.json"  # as train/saving/steps.py has them, which imports torch


def check_branches(declared: Sequence[Declared], inputs: Mapping[str, Inputs], problems: Problems) -> None:
    """Check every `from_step` against what the named stage keeps, or what exists at the named path."""
    configs = {stage.name: stage.config for stage in declared}
    for stage in declared:
        step: int | None = getattr(stage.config, "from_step", None)  # of PretrainConfig, which imports torch
        if step is None:
            continue
        source, fix = inputs[stage.name].get("checkpoint"), None
        match source:
            case FromStage():
                before = configs[source.stage]
                fix = why_missing(step, before, source.stage) if isinstance(before, TrainingConfig) else None
                problem = f"{source.stage} keeps no checkpoint of step {step}"
            case FromPath():
                fix = why_absent(step, source.path.parent)
                problem = f"there is no checkpoint of step {step} beside {source.path}"
        if fix is not None:
            problems.add(f"{stage.name}.from_step: {problem}", place=stage.place, fix=fix)


def why_missing(step: int, config: TrainingConfig, stage: str) -> str | None:
    """The fix if a stage cannot keep the checkpoint of `step`; None if it can."""
    plan = config.checkpoints
    if config.steps and step > config.steps:  # 0: the data says how many
        return f"{stage} has {config.steps} steps: choose one of them"
    if step != config.steps and step % plan.every:
        return f"{stage} saves every {plan.every} steps: choose one of those, or set its checkpoints.every"
    if plan.keep_best or (plan.keep_every is not None and step % plan.keep_every == 0):
        return None
    if plan.keep_every is None:
        return f"set checkpoints.keep_every in {stage}: other checkpoints are deleted at its end"
    return f"{stage} keeps every {plan.keep_every} steps: choose one of those, or set its checkpoints.keep_every"


def why_absent(step: int, folder: Path) -> str | None:
    """The same for a stage folder on disk; None if the checkpoint may be at a URL or on another machine."""
    if not folder.exists() or (folder / COPIES).exists() or (folder / STEP.format(step)).exists():
        return None
    there = sorted(path.name for path in folder.glob(STEP.split("{")[0] + "*[0-9]"))
    return f"there are {', '.join(there)}" if there else "name a stage that ran with checkpoints.keep_every"
