"""Hold the options of asynchronous RL: samplers in processes of their own, on this machine, in a Ray cluster or elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from ingot.post.samplers.kinds import TRANSPORTS, LocalTransportConfig, TransportConfig
from ingot.workspace.config import Config
from ingot.workspace.outside import digests, without_paths


class AsynchronousConfig(Config):
    """Samplers in processes of their own, which never wait for training (post/samplers/)."""

    moved: ClassVar[Mapping[str, str]] = {
        "slots": "slots: ... of the stage",
        "precision": "sampling_precision: ... of the stage",
        "ray": "transport: {kind: ray, ...}",
    }
    how: ClassVar[frozenset[str]] = frozenset({"samplers", "tensor", "silence_seconds", "transport"})
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
        description="a sampler that gave no sign of life for so long is killed and started again; with a `ray` transport, also "
        "how long the cluster may take to find a node for it",
    )
    transport: Annotated[TransportConfig, TRANSPORTS] = Field(
        LocalTransportConfig(),
        description="where samplers run: local (processes of this machine), ray (actors of a cluster), or a class of yours, "
        "file.py:Name",
    )

    @model_validator(mode="after")
    def _spans_devices(self) -> AsynchronousConfig:
        self.transport.check(self.tensor)
        return self

    def outside(self) -> dict[str, str]:
        """The file of a transport of the user's own: where samplers run is no part of the work, but what that file does is."""
        return without_paths(digests(self.transport.model_dump(mode="json")))
