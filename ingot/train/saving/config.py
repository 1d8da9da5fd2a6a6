"""Options of the checkpoints of a run in progress."""

from __future__ import annotations

from pydantic import Field

from ingot.workspace.config import Config


class CheckpointsConfig(Config):
    """When a run is saved, what is kept, and where it is copied to."""

    every: int = Field(50, gt=0, description="steps between checkpoints")
    keep: int = Field(2, gt=0, description="how many of the newest are kept while the stage runs")
    keep_every: int | None = Field(
        None, gt=0, description="checkpoints at multiples of this step are kept for good, to branch from (annealing)"
    )
    keep_best: bool = Field(False, description="keep also the one with the lowest validation_bits_per_byte")
    asynchronous: bool = Field(True, description="write in the background; the run stops only to copy its state")
    copy_to: str | None = Field(
        None, description="fsspec URL to which every finished checkpoint is copied, such as s3://bucket/run"
    )
