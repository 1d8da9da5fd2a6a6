"""Checks, when a recipe is loaded, that what `eval.every`, `choose` and the claims of a verdict need will be there.

The checkpoints of every so many steps must be kept by the training stage. What chooses between them is no longer held out: every
eval stage of the recipe that measures this suite must say so. A verdict may only name stages that are evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingot.evals.config import ChooseConfig, EvalConfig, VerdictConfig
from ingot.train.check import STEP
from ingot.train.config import TrainingConfig
from ingot.workspace.draft import Draft, DraftStage, FromPath, FromStage, StageProblem
from ingot.workspace.nearest import suggestion


def check_every(stage: DraftStage, draft: Draft) -> Iterator[StageProblem]:
    """That the stage before an eval keeps the checkpoints that it measures."""
    every = stage.config.every if isinstance(stage.config, EvalConfig) else None
    if every is None:
        return
    source, fix = stage.inputs.get("checkpoint"), None
    match source:
        case FromStage():
            before = draft[source.stage].config
            if isinstance(before, TrainingConfig):
                fix = why_not_kept(every, before, source.stage)
            elif before is not None:
                fix = f"{source.stage} does not train: name a training stage, or leave out `every`"
        case FromPath():
            folder = source.path.parent / STEP.split("/")[0]
            if source.path.exists() and not folder.is_dir():
                fix = f"there is no folder {folder}: give the checkpoint of a training stage, or leave out `every`"
    if fix is not None:
        yield StageProblem(f"no checkpoints of every {every} steps", fix, "every")


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


def check_choice(stage: DraftStage, draft: Draft) -> Iterator[StageProblem]:
    """That a choice reads the scores of the stage that it chooses from, over a suite that is not held out."""
    config = stage.config
    if not isinstance(config, ChooseConfig):
        return
    scores, checkpoint = stage.inputs.get("scores"), stage.inputs.get("checkpoint")
    if isinstance(scores, FromStage):
        measured = draft[scores.stage]
        if isinstance(measured.config, EvalConfig) and measured.config.every is None:
            yield StageProblem(f"{scores.stage} measures one checkpoint only", f"write every: N in {scores.stage}")
        if measured.inputs.get("checkpoint") != checkpoint:
            fix = "write inputs: {checkpoint: STAGE, scores: STAGE} of the same training stage"
            yield StageProblem(f"{scores.stage} measured another checkpoint", fix)
    for other in draft.values():
        for suite in other.config.suites if isinstance(other.config, EvalConfig) else ():
            if suite.held_out and config.metric.split("/")[0] in (suite.short_name, suite.name):
                problem = f"{config.metric} chooses a checkpoint in {stage.name}, so it is not held out"
                yield StageProblem(problem, f"write {{suite: {suite.suite}, held_out: false}}", stage=other.name)


def check_claims(stage: DraftStage, draft: Draft) -> Iterator[StageProblem]:
    """That every claim names stages that are evaluated before."""
    scores = stage.inputs.get("scores")
    if not isinstance(stage.config, VerdictConfig) or not isinstance(scores, Mapping):
        return
    for number, claim in enumerate(stage.config.claims):
        for name in (claim.stage, claim.reference_stage):
            if name is not None and name not in scores:
                fix = suggestion(name, scores, "evaluated stages")
                yield StageProblem(f"no stage {name} is evaluated before", fix, f"claims.{number}")
