"""The mesh of a training stage: how many ways each kind of parallelism divides the work."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ingot.workspace.config import Config


class MeshConfig(Config):
    """How the processes of a run (torchrun) divide model and data; the product of all but `expert` is their number."""

    replicate: int = Field(1, gt=0, description="copies of the sharded model (HSDP); gradients are summed over them")
    shard: int = Field(
        0, ge=0, description="FSDP2: ranks over which weights, gradients and optimizer state are sharded; 0: the rest"
    )
    tensor: int = Field(1, gt=0, description="tensor parallel: heads, inner channels and vocabulary divided")
    context: int = Field(1, gt=0, description="context parallel: each row's tokens divided")
    pipeline: int = Field(1, gt=0, description="pipeline parallel: layers divided into stages")
    expert: int = Field(1, gt=0, description="expert parallel: experts divided over ranks of shard × context")
    context_method: Literal["gather", "ring"] = Field(
        "gather", description="keys and values gathered by every rank, or passed around a ring"
    )
    pipeline_schedule: Literal["1f1b", "interleaved"] = Field(
        "1f1b", description="one stage per rank, or several (`pipeline_stages`), which shrinks the bubble"
    )
    pipeline_stages: int = Field(1, gt=0, description="stages per rank of the interleaved schedule")
    reshard_after_forward: bool = Field(
        True, description="FSDP: free gathered weights after a block's forward pass (less memory, one more gather)"
    )

    @model_validator(mode="after")
    def _has_its_axes(self) -> MeshConfig:
        if self.context == 1:
            self.refuse("context_method", because="no row is divided (context: 1)", instead="set context")
        if self.pipeline == 1:
            self.refuse(
                "pipeline_schedule",
                "pipeline_stages",
                because="layers are not divided (pipeline: 1)",
                instead="set pipeline",
            )
        if self.shard * self.context == 1:
            self.refuse("reshard_after_forward", because="no weights are gathered (shard: 1)", instead="set shard")
        if (self.pipeline_schedule == "interleaved") != (self.pipeline_stages > 1):
            raise ValueError(
                f"pipeline_schedule {self.pipeline_schedule} with pipeline_stages {self.pipeline_stages}: interleaved needs at "
                "least 2 stages per rank, 1f1b has one"
            )
        return self
