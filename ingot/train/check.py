"""Checks a training stage of a recipe before anything runs: its mesh, optimizer and guards, `from_step`, its mixture of sources.

A stage writes a checkpoint at multiples of `every`, and at its end if that one is kept. Multiples of `keep_every` stay after the
stage and, with `keep_best`, one that only the run knows: any step that is written may be it.

The model of a stage is that of the stage in which its checkpoint began, with the changes on the way. Of a checkpoint on disk
nothing is known here: such a run is refused when it starts. The loader checks shards on disk before the first step, and what
follows @ in a weight (`books@32768+`) selects documents of a source, which only the shards know.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ingot.tokens.config import TokenizeConfig
from ingot.train.config import TrainingConfig
from ingot.workspace.draft import Draft, DraftStage, FromPath, FromStage, StageProblem
from ingot.workspace.nearest import suggestion

if TYPE_CHECKING:
    from ingot.model.config import ModelConfig
    from ingot.train.pretrain_config import PretrainConfig

STEP, COPIES = "steps/step-{:07d}", "steps/copies.json"  # as train/saving/steps.py has them, which imports torch


def check_training(stage: DraftStage) -> Iterator[StageProblem]:
    """What cannot act on the model, or divide it, where the recipe says which model that is."""
    if stage.model is None or not isinstance(stage.config, TrainingConfig):
        return
    from ingot.optim.idle import idle_options  # here: a recipe without a model is checked without loading torch
    from ingot.train.guards.idle import idle_guards
    from ingot.train.parallel.divisible import find_unsupported

    for broken in find_unsupported(stage.model, stage.config.mesh):
        yield StageProblem(broken.problem, broken.fix, "mesh")
    idle = (*idle_options(stage.config.optimizer, stage.model), *idle_guards(stage.config.guards, stage.model))
    for problem, fix in idle:
        option, _, text = problem.partition(": ")
        yield StageProblem(text, fix, option)


def check_pretraining(stage: DraftStage, draft: Draft) -> Iterator[StageProblem]:
    """That the checkpoint of `from_step` and the sources of every phase will exist."""
    config = stage.config
    if config is None:
        return
    yield from _check_branch(stage, config, draft)  # type: ignore[arg-type]
    yield from _check_mixture(stage, config, draft)  # type: ignore[arg-type]
    yield from check_training(stage)


def pretrained_model(config: PretrainConfig, model: ModelConfig | None) -> ModelConfig | None:
    """The model with what the stage changes: its own, or that of its checkpoint."""
    from ingot.train.changes import changed_model

    if config.model is not None:
        model = config.model.model_copy(update={"context": config.sequence_length})
    return None if model is None else changed_model(model, config)


def _check_branch(stage: DraftStage, config: PretrainConfig, draft: Draft) -> Iterator[StageProblem]:
    step = config.from_step
    if step is None:
        return
    source, fix = stage.inputs.get("checkpoint"), None
    match source:
        case FromStage():
            before = draft[source.stage].config
            fix = why_missing(step, before, source.stage) if isinstance(before, TrainingConfig) else None
            problem = f"{source.stage} keeps no checkpoint of step {step}"
        case FromPath():
            fix = why_absent(step, source.path.parent)
            problem = f"there is no checkpoint of step {step} beside {source.path}"
    if fix is not None:
        yield StageProblem(problem, fix, "from_step")


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


def _check_mixture(stage: DraftStage, config: PretrainConfig, draft: Draft) -> Iterator[StageProblem]:
    shards = stage.inputs.get("shards")
    makes = draft[shards.stage].config if isinstance(shards, FromStage) else None
    if not isinstance(shards, FromStage) or not isinstance(makes, TokenizeConfig):  # None: it has problems of its own
        return
    names = (name.partition("@")[0] for phase in config.phases for name in phase.weights)
    for name in dict.fromkeys(names):
        if name not in makes.sources:
            problem = f"{shards.stage} makes no source {name} to train on"
            yield StageProblem(problem, suggestion(name, makes.sources, "sources"), "phases")
