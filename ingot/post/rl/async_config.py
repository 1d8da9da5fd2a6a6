"""Hold the options of asynchronous RL: samplers in processes of their own, on this machine or in a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from ingot.workspace.config import Config


class RaySamplersConfig(Config):
    """Samplers as actors of a Ray cluster (`pip install -e ".[ray]"`)."""

    address: str = Field(
        "auto", description="of the cluster: `auto`, HOST:PORT, or `local`, which starts one on this machine"
    )
    cpus: int = Field(
        1, gt=0, description="processors that each sampler asks of the cluster; it samples with as many threads"
    )
    gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs that each sampler asks of the cluster, or a fraction of one; 0: it samples on a CPU; null: `tensor` if "
        "the learner has one",
    )


class AsynchronousConfig(Config):
    """Samplers in processes of their own, which never wait for training (post/samplers/)."""

    moved: ClassVar[Mapping[str, str]] = {
        "slots": "slots: ... of the stage",
        "precision": "sampling_precision: ... of the stage",
    }
    how: ClassVar[frozenset[str]] = frozenset({"samplers", "tensor", "silence_seconds", "ray"})
    staleness: int = Field(
        4,
        gt=0,
        description="most updates between the weights that drew a token and those that learn from it, up to the last update on "
        "its batch; groups with an older token are dropped, and their tasks come again",
    )
    samplers: int = Field(1, gt=0, description="engines that sample, each with its own copy of the model")
    tensor: int = Field(
        1,
        gt=0,
        description="devices of one sampler: it divides heads, inner channels and vocabulary over so many processes, as "
        "mesh.tensor does in training; must divide the model's heads and widths",
    )
    silence_seconds: float = Field(
        300.0,
        gt=0,
        description="a sampler that gave no sign of life for so long is killed and started again; with `ray`, also how long the "
        "cluster may take to find a node for it",
    )
    ray: RaySamplersConfig | None = Field(
        None, description="samplers as actors of a Ray cluster; null: processes of this machine"
    )

    @model_validator(mode="after")
    def _has_gpus(self) -> AsynchronousConfig:
        gpus = None if self.ray is None else self.ray.gpus
        if self.tensor > 1 and gpus and gpus != self.tensor:
            raise ValueError(
                f"ray.gpus: a sampler over {self.tensor} devices asks for {self.tensor} GPUs, not {gpus:g}"
            )
        return self
