"""Checks, when a recipe is loaded, that what a stage does to its model can act on that model.

The model of a stage is that of the stage in which its checkpoint began, with the changes on the way. Of a checkpoint on disk
nothing is known here: such a run is refused when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ingot.recipe.declare import Declared
from ingot.recipe.problems import Problems
from ingot.recipe.recipe import FromStage, Inputs
from ingot.train.config import TrainingConfig
from ingot.workspace.errors import RecipeError

if TYPE_CHECKING:
    from ingot.model.config import ModelConfig


def check_changes(declared: Sequence[Declared], inputs: Mapping[str, Inputs], problems: Problems) -> None:
    """Check the changes, and the options of optimizer and guards, of every training stage whose model the recipe says."""
    models: dict[str, ModelConfig] = {}
    for stage in declared:
        config, source = stage.config, inputs[stage.name].get("checkpoint")
        model: ModelConfig | None = getattr(config, "model", None) if stage.kind.kind == "pretrain" else None
        if model is None and isinstance(source, FromStage):
            model = models.get(source.stage)
        if model is None or config is None:
            continue
        try:
            models[stage.name] = model = _changed(model, config)
        except RecipeError as error:
            problems.add(f"{stage.name}.{error.problem}", place=stage.place, fix=error.fix)
            continue
        if isinstance(config, TrainingConfig):
            from ingot.optim.idle import idle_options  # here: a recipe without a model is checked without loading torch
            from ingot.train.guards.idle import idle_guards
            from ingot.train.parallel.divisible import find_unsupported

            for broken in find_unsupported(model, config.mesh):
                problems.add(f"{stage.name}.mesh: {broken.problem}", place=stage.place, fix=broken.fix)
            for problem, fix in (*idle_options(config.optimizer, model), *idle_guards(config.guards, model)):
                problems.add(f"{stage.name}.{problem}", place=stage.place, fix=fix)


def _changed(model: ModelConfig, config: object) -> ModelConfig:
    from ingot.train.changes import changed_model
    from ingot.train.pretrain_config import PretrainConfig

    if not isinstance(config, PretrainConfig):
        return model
    start = model if config.model is None else model.model_copy(update={"context": config.sequence_length})
    return changed_model(start, config)
