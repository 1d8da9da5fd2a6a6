"""A pool of the processes of a Ray cluster (`pip install -e ".[ray]"`).

All machines must see the run folder under the same path (a shared file system), because tasks exchange files there.
Ray's own retries are off: a call whose worker or node is lost comes back as `lost`, and Work calls it again, as it
does on one machine.
"""

from __future__ import annotations

from typing import Any

from ingot.data.engine.pool import CallResult, PoolCall, WorkPool, answer
from ingot.data.engine.ray_cluster import connect, describe


class RayPool(WorkPool):
    """`workers` calls at once, or as many as the cluster has processors."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self.ray, self.started = connect(address, workers)
        self.width = workers or max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        self.remote = self.ray.remote(num_cpus=1, max_retries=0)(answer)
        self.numbers: dict[Any, int] = {}

    def start(self) -> None:
        pass  # the cluster runs

    def submit(self, call: PoolCall) -> None:
        self.numbers[self.remote.remote(call)] = call.number

    def wait(self, seconds: float) -> list[CallResult]:
        ready, _ = self.ray.wait(list(self.numbers), num_returns=1, timeout=seconds)
        return [self._receive(reference) for reference in ready]

    def _receive(self, reference: Any) -> CallResult:
        number = self.numbers.pop(reference)
        try:
            received = self.ray.get(reference)
            assert isinstance(received, CallResult)
            return received
        except self.ray.exceptions.RayError as error:
            return CallResult(number, lost=describe(error))

    def close(self) -> None:
        for reference in self.numbers:
            self.ray.cancel(reference, force=True)
        self.numbers = {}
        if self.started:
            self.ray.shutdown()
