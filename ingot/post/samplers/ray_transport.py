"""Samplers as actors of a Ray cluster (`pip install -e ".[ray]"`), on any of its nodes; the sampler is that of one machine.

    weights     one `put` into Ray's object store for each version; a node copies it once, and all of its actors map it. The
                learner keeps the newest reference, an actor the one it is reading: what nobody refers to is dropped by Ray
    messages    one `exchange` after the other with each actor, in a thread of its own (ray_actor.py)
    files       environments and tools of the user's travel with the sampler (shipment.py)

Ray restarts nothing itself. An actor whose process or node dies is `Lost`, and another one is placed on a node that lives, spread
over the cluster; that no node takes it for `silence` seconds is an error. Actors end with their learner, however it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ingot.data.engine.ray_cluster import connect, describe
from ingot.envs.config import TaskMixConfig
from ingot.post.samplers.fleet import END_SECONDS, Fleet, Inbox, Worker
from ingot.post.samplers.messages import Command, Lost, NewWeights, Stop
from ingot.post.samplers.ray_actor import Mail, RaySampler
from ingot.post.samplers.shipment import Shipment
from ingot.post.samplers.weights_buffer import WeightsLayout
from ingot.post.samplers.worker import SamplerConfig
from ingot.workspace.errors import CheckFailed


class ActorWorker(Worker):
    """A sampler's actor. `given` are references to what it must know."""

    def __init__(self, inbox: Inbox, ray: Any, resources: Mapping[str, float], *given: Any) -> None:
        super().__init__()
        self.ray, self.resources = ray, resources
        options = {"max_concurrency": 2, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self.actor = ray.remote(RaySampler).options(**options, **resources).remote()
        self.serving = self.actor.serve.remote(*given)
        self.outbox: Mail[Command] = Mail()
        self.placed = self.told = False
        self.thread = threading.Thread(target=self._listen, args=(inbox,), name="ingot-sampler", daemon=True)
        self.thread.start()

    def _listen(self, inbox: Inbox) -> None:
        try:
            ended = False
            while not ended:
                ended = bool(
                    self.ray.wait([self.serving], timeout=0)[0]
                )  # first: its last words come with what follows
                for event in self.ray.get(self.actor.exchange.remote(self.outbox.take_all())):
                    inbox.put((self, event))
                self.placed = True
            self.ray.get(self.serving)
            inbox.put((self, Lost("it has ended")))
        except self.ray.exceptions.RayError as error:
            inbox.put((self, Lost(describe(error))))

    def say(self, message: Command) -> None:
        self.told = isinstance(message, Stop)
        self.outbox.put(message)

    def end(self) -> str:
        if self.told:
            self.ray.wait([self.serving], timeout=END_SECONDS)
        self.ray.kill(self.actor)
        self.thread.join(END_SECONDS)
        return "what it printed is in the logs of Ray"

    def overdue(self, silence: float) -> Lost | None:
        if not self.placed and time.monotonic() - self.heard > silence:
            asked = ", ".join(f"{name} {amount:g}" for name, amount in self.resources.items())
            free = {name: self.ray.available_resources().get(name, 0) for name in ("CPU", "GPU")}
            raise CheckFailed(
                f"no node of the Ray cluster took a sampler within {silence:g} seconds: it asks for {asked}; free are "
                + ", ".join(f"{name} {amount:g}" for name, amount in free.items()),
                place="asynchronous.transport",
                fix="start more nodes, or lower asynchronous.samplers; the run goes on from its last checkpoint",
            )
        return super().overdue(silence)


class RayTransport(Fleet):
    """`count` actors, each with so many processors and GPUs."""

    def __init__(self, config: SamplerConfig, count: int, silence: float, address: str, cpus: int, gpus: float) -> None:
        super().__init__(count, silence)
        self.address, self.resources = address, {"num_cpus": float(cpus), "num_gpus": gpus}
        mixes = [config.tasks] if config.listed is None else [config.tasks, config.listed.tasks]
        self.shipment = Shipment.pack(mixes, config.tools)
        ranks = range(len(config.devices))
        devices = tuple(f"cuda:{rank}" if gpus else "cpu" for rank in ranks)  # Ray shows an actor its own GPUs only
        threads = max(1, cpus // len(devices))
        self.config = replace(config, devices=devices, threads=threads, tasks=TaskMixConfig(), tools=())
        self.ray: Any = None
        self.connected = False  # by this transport, which ends it

    def publish(self, weights: Iterable[tuple[str, Tensor]], version: int) -> NewWeights:
        if self.ray is None:
            self.ray, self.connected = connect(self.address)
            self.given = [self.ray.put(self.config), self.ray.put(self.shipment)]
            self.layout = WeightsLayout(self.config.model, self.config.dtype)
            self.block = torch.zeros(self.layout.size, dtype=torch.uint8)
        checksum = self.layout.write(self.block, weights)
        return NewWeights(version, self.ray.put(self.block.numpy()), checksum)

    def start(self, number: int) -> Worker:
        return ActorWorker(self.inbox, self.ray, self.resources, *self.given)

    def close(self) -> None:
        super().close()
        self.given = []
        if self.connected:
            self.ray.shutdown()
        self.ray, self.connected = None, False
