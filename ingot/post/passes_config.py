"""How long a stage trains that learns from a fixed set of data: a number of optimizer steps, or of passes over the data.

With `epochs` the steps follow from the data, which the stage reads when it runs (passes.py); until then `steps` is 0.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from ingot.train.config import TrainingConfig


class PassesConfig(TrainingConfig):
    """Training in optimizer steps or in passes over the data."""

    steps: int = Field(0, ge=0, description="optimizer steps; 0: as many as `epochs` takes")
    epochs: float | None = Field(None, gt=0, description="instead of steps: passes over the data")
    sequence_length: int = Field(1024, gt=1, description="positions in a packed row")

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is None and self.steps == 0:
            raise ValueError("steps: give the number of optimizer steps, or `epochs`, passes over the data")
        if self.epochs is not None and self.steps:
            raise ValueError("epochs: `steps` is given too: leave one of them out (steps: 0 takes back one of a base)")
        return self
