"""Estimates how fast a training stage should run on this machine, which the stage prints when it starts.

A run that reaches half of it has a problem, which the measured number alone does not show.
"""

from __future__ import annotations

from ingot.recipe.recipe import Recipe
from ingot.train.config import TrainingConfig
from ingot.workspace.errors import ArtifactError


def expected_speed(recipe: Recipe, stage: str, processes: int) -> float | None:
    """Tokens per second of all devices together.

    None where it is not known: on a CPU or an unknown GPU, and for stages that do not know their tokens in advance.
    """
    config = recipe.stage(stage).config
    if not isinstance(config, TrainingConfig):
        return None
    # here, because they import torch, which recipes without a training stage do without
    from ingot.model.count import count
    from ingot.planner.cost import stage_models
    from ingot.planner.hardware import find_gpu, reached
    from ingot.planner.memory import step_rows
    from ingot.planner.placement import judge, resolve
    from ingot.planner.plan import this_gpu
    from ingot.planner.shape import shape_of
    from ingot.train.parallel.divisible import find_indivisible

    gpu = this_gpu()
    if gpu is None or not config.counts_tokens:
        return None
    try:
        model = stage_models(recipe, look=True)[stage]
    except ArtifactError:  # a checkpoint that some stage starts from: that stage will say what is wrong
        return None
    if model is None:
        return None
    mesh, rows = resolve(config.mesh, processes), step_rows(config)
    if find_indivisible(model, mesh, sequence_length=config.sequence_length, rows_per_step=rows):
        return None  # the stage itself will say what is wrong
    device, flops = find_gpu(gpu), count(model).training_flops_per_token(config.sequence_length)
    judged = judge(shape_of(model), config, mesh, device, reached(device), flops)
    return None if judged.tokens_per_second is None else judged.tokens_per_second * judged.gpus
