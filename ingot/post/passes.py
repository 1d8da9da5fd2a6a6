"""How many steps the `epochs` of a stage are, which only its data says."""

from __future__ import annotations

from typing import TypeVar

from ingot.optim.schedule import check_schedule
from ingot.post.data.conversations.sequences import PoolSource
from ingot.post.passes_config import PassesConfig
from ingot.train.config import TrainingConfig
from ingot.train.source import Source
from ingot.workspace.errors import RecipeError

Options = TypeVar("Options", bound=TrainingConfig)


def in_steps(config: Options, source: Source) -> Options:
    """The options with the number of steps that their passes over the source take."""
    if not isinstance(config, PassesConfig) or config.epochs is None:
        return config
    assert isinstance(source, PoolSource)  # answers that are sampled anew have no passes, as the options are checked
    steps = source.steps_of(config.epochs)
    try:
        check_schedule(config.schedule, steps)
    except ValueError as error:
        raise RecipeError(
            f"{config.epochs:g} epochs are {steps} steps: {error}",
            place="schedule",
            fix="give more epochs, smaller batches, or the schedule's spans as shares of the steps",
        ) from error
    return config.model_copy(update={"steps": steps})
