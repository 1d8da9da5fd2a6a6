"""A transport of my own: samplers as threads of the learner's process, which read its copies of the weights."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from multiprocessing import Pipe

from torch import Tensor

from ingot.inference.checksum import state_checksum
from ingot.post.samplers.fleet import END_SECONDS, Fleet, Inbox, Worker
from ingot.post.samplers.kinds import FleetConfig, TransportConfig
from ingot.post.samplers.messages import Command, Lost, NewWeights
from ingot.post.samplers.transport import Transport
from ingot.post.samplers.worker import SamplerConfig, run_sampler


class Threads(TransportConfig):
    def open(self, fleet: FleetConfig) -> Transport:
        return ThreadTransport(fleet)


class Copies(dict[int, Mapping[str, Tensor]]):
    def read(self, where: int) -> Mapping[str, Tensor]:
        return self[where]


class ThreadWorker(Worker):
    def __init__(self, inbox: Inbox, config: SamplerConfig, copies: Copies) -> None:
        super().__init__()
        self.pipe, far = Pipe()
        self.sampler = threading.Thread(target=run_sampler, args=(far, config, copies), daemon=True)
        self.sampler.start()
        threading.Thread(target=self._listen, args=(inbox,), daemon=True).start()

    def _listen(self, inbox: Inbox) -> None:
        try:
            while True:
                inbox.put((self, self.pipe.recv()))
        except (EOFError, OSError, TypeError):  # the pipe was closed
            inbox.put((self, Lost("its pipe was closed")))

    def say(self, message: Command) -> None:
        self.pipe.send(message)

    def end(self) -> str:
        self.sampler.join(END_SECONDS)
        self.pipe.close()
        return "a thread"


class ThreadTransport(Fleet):
    def __init__(self, fleet: FleetConfig) -> None:
        super().__init__(fleet.count, fleet.silence)
        self.config, self.copies = fleet.sampler, Copies()

    def publish(self, weights: Iterable[tuple[str, Tensor]], version: int) -> NewWeights:
        self.copies[version] = {name: tensor.clone() for name, tensor in weights}
        self.copies.pop(version - 4, None)  # taken by all long ago
        return NewWeights(version, version, state_checksum(self.copies[version]))

    def start(self, number: int) -> Worker:
        return ThreadWorker(self.inbox, self.config, self.copies)
