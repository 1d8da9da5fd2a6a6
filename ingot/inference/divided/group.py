"""The processes of a divided engine: this one leads, and one more for each further device follows (follower.py).

They find each other through a store of this process and form torch's process group: gloo on CPUs, NCCL on GPUs. Commands go
through a pipe to each follower, so that followers wait for work without a deadline and end when the pipe closes.

No wait is for ever. A follower that dies takes the leader with it at once, wherever the leader waits: on a GPU a collective
would miss it only at its deadline. A leader that dies takes its followers with it, on Linux stopped ones too. Where a process
hangs instead, collectives end by TIMEOUT, and the fleet ends a sampler that is silent. After an error in the middle of a command
the ranks may be at different places of it: nothing more can be asked of the group.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch
from torch import distributed
from torch._C._distributed_c10d import TCPStore

from ingot.inference.divided.commands import Command
from ingot.inference.divided.follower import FollowerStart, RankDevice
from ingot.inference.divided.leader import LeadingModel
from ingot.inference.divided.rank import build_part
from ingot.model.config import ModelConfig
from ingot.train.parallel.divisible import check_tensor
from ingot.workspace.errors import IngotError

TIMEOUT = timedelta(minutes=10)  # of a collective: the first ones wait while kernels are compiled
END_SECONDS = 5.0
FOLLOWER = "ingot.inference.divided.follower"


class EngineGroup:
    """A rank on each of `devices`, and the model of its leader, without weights: `Engine(group.model)`.

    The thread that makes it must live as long as the group. `backend` is torch's; gloo lets ranks share a GPU, for tests.
    """

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        devices: Sequence[str],
        threads: int = 1,
        backend: str | None = None,
    ) -> None:
        check_tensor(config, len(devices), "tensor")
        backend = backend or ("nccl" if devices[0].startswith("cuda") else "gloo")
        if backend == "nccl" and len(set(devices)) < len(devices):
            problem = f"an engine over {len(devices)} GPUs needs as many different ones, not {', '.join(devices)}"
            raise IngotError(problem, place="tensor", fix="choose a smaller tensor")
        if distributed.is_initialized():
            raise IngotError("this process is one of a training run's, and cannot lead others", place="tensor")
        self.size, self._closing, self._broken = len(devices), False, False
        store = TCPStore("127.0.0.1", 0, self.size, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
        self.followers: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        with ExitStack() as failed:
            failed.callback(self.close)
            for rank in range(1, self.size):
                place = RankDevice(rank, self.size, devices[rank], backend, TIMEOUT)
                self._add(rank, FollowerStart(config, dtype, place, threads, store.port, os.getpid()))
            device = RankDevice(0, self.size, devices[0], backend, TIMEOUT).join(store)
            self.model, cuts = build_part(LeadingModel, config, dtype, device)
            failed.pop_all()
        self.model.cuts, self.model.group = cuts, self

    def _add(self, rank: int, start: FollowerStart) -> None:
        """Start a follower, and a thread that waits for its end."""
        pipe, far_end = Pipe()
        with far_end:
            number = far_end.fileno()
            command = [sys.executable, "-P", "-m", FOLLOWER, str(number)]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # it imports what this process does
            follower = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL, env=environment)
        self.followers.append(follower)
        self._pipes.append(pipe)
        threading.Thread(target=self._watch, args=(rank, follower), daemon=True).start()
        pipe.send(start)

    def _watch(self, rank: int, follower: subprocess.Popen[bytes]) -> None:
        code = follower.wait()
        if not self._closing:
            problem = (
                f"rank {rank} of {self.size} of a divided engine ended with exit code {code}, and so does the engine"
            )
            print(problem, file=sys.stderr, flush=True)  # noqa: T201 - there is no time for anything else
            os._exit(1)

    @contextmanager
    def together(self, command: Command) -> Iterator[None]:
        """All ranks do this: the others by the command, this one by the body."""
        if self._broken or self._closing:
            raise RuntimeError("an earlier command of this divided engine did not come to its end, or it is closed")
        self._broken = True
        for pipe in self._pipes:
            pipe.send(command)
        yield
        self._broken = False

    def close(self) -> None:
        """End the followers."""
        if self._closing:
            return
        self._closing = True
        for pipe in self._pipes:
            pipe.close()
        for follower in self.followers:
            with suppress(subprocess.TimeoutExpired):
                follower.wait(END_SECONDS)
            follower.kill()
            follower.wait(END_SECONDS)
        if distributed.is_initialized() and not self._broken:  # or it might wait for what will not come
            distributed.destroy_process_group()
