"""A pool of the processes of a Ray cluster (`pip install "ingot[ray]"`).

All machines must see the run folder under the same path (a shared file system), because tasks exchange files there.
Ray's own retries are off: a call whose worker or node is lost comes back as `lost`, and Work calls it again, as it
does on one machine.
"""

from __future__ import annotations

import sys
from typing import Any

from ingot.data.engine.pool import Answer, Call, Pool, answer
from ingot.workspace.errors import DataError


class RayPool(Pool):
    """`workers` calls at once, or as many as the cluster has processors."""

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise DataError("engine: ray needs the package ray", fix='pip install "ingot[ray]"') from None
        self.ray = ray
        self.started = not ray.is_initialized()
        if self.started:
            ray.init(
                address=address or "local",  # without an address Ray would join whatever cluster it finds running here
                num_cpus=workers if address is None else None,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"env_vars": {"PYTHONPATH": ":".join(filter(None, sys.path))}} if address is None else None,
            )
        self.width = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.remote = ray.remote(num_cpus=1, max_retries=0)(answer)
        self.numbers: dict[Any, int] = {}

    def start(self) -> None:
        pass  # the cluster runs

    def submit(self, call: Call) -> None:
        self.numbers[self.remote.remote(call)] = call.number

    def wait(self, seconds: float) -> list[Answer]:
        ready, _ = self.ray.wait(list(self.numbers), num_returns=1, timeout=seconds)
        return [self._receive(reference) for reference in ready]

    def _receive(self, reference: Any) -> Answer:
        number = self.numbers.pop(reference)
        try:
            received = self.ray.get(reference)
            assert isinstance(received, Answer)
            return received
        except self.ray.exceptions.RayError as error:
            first = str(error).strip().split("\n")[0]
            return Answer(number, lost=f"{type(error).__name__}: {first}")

    def close(self) -> None:
        for reference in self.numbers:
            self.ray.cancel(reference, force=True)
        self.numbers = {}
        if self.started:
            self.ray.shutdown()
