"""Names how the learner reaches its samplers in a recipe: processes of this machine, a Ray cluster, or a class of the user's own.

asynchronous: { transport: ray }                                    with options: { kind: ray, address: HOST:PORT }
asynchronous: { transport: mine.py:Mine }

class Mine(TransportConfig):
    def open(self, fleet): return MyTransport(fleet)                # a `Transport`; most derive from `Fleet` (fleet.py)
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ingot.workspace.kinds import Part, Parts

if TYPE_CHECKING:
    import torch

    from ingot.post.samplers.transport import Transport
    from ingot.post.samplers.worker import SamplerConfig


@dataclass(frozen=True)
class FleetConfig:
    """The samplers that a transport is to start: so many of this kind, given up when silent for so many seconds.

    `device` is the learner's; on GPUs `first_gpu` is the first of this machine's that the learner does not use.
    """

    sampler: SamplerConfig
    count: int
    silence: float
    device: torch.device
    first_gpu: int = 1


class TransportConfig(Part):
    """The options of a transport."""

    elsewhere: ClassVar[bool] = False  # whether samplers are on other machines: they take no memory of this one

    def check(self, tensor: int) -> None:
        """A ValueError if a sampler cannot span so many devices."""

    @abstractmethod
    def open(self, fleet: FleetConfig) -> Transport:
        """The transport; samplers start with the first weights."""


class LocalTransportConfig(TransportConfig):
    """Samplers as processes of this machine."""

    kind: Literal["local"] = Field("local", description="which transport this is")

    def open(self, fleet: FleetConfig) -> Transport:
        from ingot.post.samplers.local import LocalTransport

        return LocalTransport(fleet.sampler, fleet.count, fleet.device, fleet.silence, fleet.first_gpu)


class RayTransportConfig(TransportConfig):
    """Samplers as actors of a Ray cluster (`pip install -e ".[ray]"`)."""

    elsewhere: ClassVar[bool] = True
    kind: Literal["ray"] = Field("ray", description="which transport this is")
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

    def check(self, tensor: int) -> None:
        if tensor > 1 and self.gpus and self.gpus != tensor:
            raise ValueError(
                f"transport.gpus: a sampler over {tensor} devices asks for {tensor} GPUs, not {self.gpus:g}"
            )

    def open(self, fleet: FleetConfig) -> Transport:
        from ingot.post.samplers.ray_transport import RayTransport

        spanned = float(len(fleet.sampler.devices) * (fleet.device.type == "cuda"))
        gpus = spanned if self.gpus is None else self.gpus
        return RayTransport(fleet.sampler, fleet.count, fleet.silence, self.address, self.cpus, gpus)


TRANSPORTS = Parts(
    TransportConfig,  # type: ignore[type-abstract]
    "sampler transport",
    (LocalTransportConfig, RayTransportConfig),
    default="local",
)
