"""Checks, when a recipe is loaded, that what `eval.every` and `choose` need will be there.

The checkpoints of every so many steps must be kept by the training stage. What chooses between them is no longer held out: every
eval stage of the recipe that measures this suite must say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.evals.config import ChooseConfig, EvalConfig
from ingot.recipe.branch import STEP
from ingot.recipe.declare import Declared
from ingot.recipe.problems import Problems
from ingot.recipe.recipe import FromPath, FromStage, Inputs
from ingot.train.config import TrainingConfig


def check_in_loop(declared: Sequence[Declared], inputs: Mapping[str, Inputs], problems: Problems) -> None:
    """Check every `every` and every `choose`."""
    stages = {stage.name: stage for stage in declared}
    for stage in declared:
        if isinstance(stage.config, EvalConfig) and stage.config.every is not None:
            _check_every(stage, stage.config.every, stages, inputs[stage.name], problems)
        if isinstance(stage.config, ChooseConfig):
            _check_choice(stage, stage.config, stages, inputs, problems)


def why_not_kept(every: int, config: TrainingConfig, stage: str) -> str | None:
    """The fix if a stage does not keep the checkpoints of multiples of `every`; None if it does."""
    plan = config.checkpoints
    if config.steps and every >= config.steps:  # 0: the data says how many
        return f"{stage} has {config.steps} steps: choose fewer, or leave it out"
    if every % plan.every:
        return f"{stage} saves every {plan.every} steps: choose a multiple of that, or set its checkpoints.every"
    if plan.keep_every is None or every % plan.keep_every:
        kept = "keeps none" if plan.keep_every is None else f"keeps every {plan.keep_every} steps"
        return f"{stage} {kept}: set its checkpoints.keep_every to {every}"
    return None


def _check_every(
    stage: Declared, every: int, stages: Mapping[str, Declared], inputs: Inputs, problems: Problems
) -> None:
    source, fix = inputs.get("checkpoint"), None
    match source:
        case FromStage():
            before = stages[source.stage].config
            if isinstance(before, TrainingConfig):
                fix = why_not_kept(every, before, source.stage)
            elif before is not None:
                fix = f"{source.stage} does not train: name a training stage, or leave out `every`"
        case FromPath():
            folder = source.path.parent / STEP.split("/")[0]
            if source.path.exists() and not folder.is_dir():
                fix = f"there is no folder {folder}: give the checkpoint of a training stage, or leave out `every`"
    if fix is not None:
        problems.add(f"{stage.name}.every: no checkpoints of every {every} steps", place=stage.place, fix=fix)


def _check_choice(
    stage: Declared,
    config: ChooseConfig,
    stages: Mapping[str, Declared],
    inputs: Mapping[str, Inputs],
    problems: Problems,
) -> None:
    scores, checkpoint = inputs[stage.name].get("scores"), inputs[stage.name].get("checkpoint")
    if isinstance(scores, FromStage):
        measured = stages[scores.stage].config
        if isinstance(measured, EvalConfig) and measured.every is None:
            fix = f"write every: N in {scores.stage}"
            problems.add(f"{stage.name}: {scores.stage} measures one checkpoint only", place=stage.place, fix=fix)
        if inputs[scores.stage].get("checkpoint") != checkpoint:
            fix = "write inputs: {checkpoint: STAGE, scores: STAGE} of the same training stage"
            problems.add(f"{stage.name}: {scores.stage} measured another checkpoint", place=stage.place, fix=fix)
    for other in stages.values():
        for suite in other.config.suites if isinstance(other.config, EvalConfig) else ():
            if suite.held_out and config.metric.split("/")[0] in (suite.short_name, suite.name):
                problems.add(
                    f"{other.name}: {config.metric} chooses a checkpoint in {stage.name}, so it is not held out",
                    place=other.place,
                    fix=f"write {{suite: {suite.suite}, held_out: false}}",
                )
