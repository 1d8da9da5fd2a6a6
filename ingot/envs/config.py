"""Which tasks a stage draws: the kinds, how often each, and how hard.

The options of a kind stand with its code, in envs/tasks/. The defaults are sized for a model of a few million parameters that
trains for minutes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.environment import TASKS
from ingot.workspace.kinds import KindName, Kinds, KindsByName

TaskName = Annotated[str, KindName(TASKS)]


class TasksConfig(KindsByName):
    """How hard task kinds are: each under its name, with its options; a kind that is not here has its defaults."""

    kinds: ClassVar[Kinds[Any]] = TASKS

    def check_asked(self, kinds: Collection[str]) -> None:
        """A ValueError if there are options of a kind that is not among these: nobody would read them."""
        if unread := [name for name in self.model_extra or {} if name not in kinds]:
            raise ValueError(
                f"difficulty.{unread[0]}: no task of this kind is asked; leave it out (null, where it is inherited), or ask some"
            )


class TaskMixConfig(TasksConfig):
    """Which task kinds, how often each, and how hard."""

    weights: dict[TaskName, float] = Field(
        {"arithmetic": 0.4, "strings": 0.2, "calculator": 0.3, "no_think": 0.1},
        description="share of each task kind; need not sum to 1, a kind that is left out does not appear",
    )

    @model_validator(mode="after")
    def _some_weight(self) -> Self:
        if any(weight < 0 for weight in self.weights.values()) or sum(self.weights.values()) <= 0:
            raise ValueError("weights must not be negative, and at least one must be larger than 0")
        drawn = [name for name, weight in self.weights.items() if weight]
        # a weight of 0 switches off a kind of the recipe that this one extends, whose options it cannot take away
        if unread := [name for name in self.model_extra or {} if name not in self.weights]:
            raise ValueError(
                f"{unread[0]}: no task of this kind is drawn, only {', '.join(drawn)}: give it a weight in `weights` (0 "
                "switches it off), or leave its options out"
            )
        return self
