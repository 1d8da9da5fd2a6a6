"""A process of a divided engine that follows: it does what rank 0 says with its part of the model, and ends with it.

python -m ingot.inference.divided.follower FD          the number of its end of the pipe; group.py starts it so
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection

import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import Store

from ingot.inference.divided.commands import (
    CacheBudget,
    ClearCaches,
    Command,
    CopyCaches,
    Hidden,
    Load,
    MakeCaches,
    Project,
    Read,
)
from ingot.inference.divided.rank import build_part, load_part, smallest_cache_budget
from ingot.inference.memory import clear_caches, copy_caches
from ingot.model.config import ModelConfig
from ingot.model.mixers.cache import Cache
from ingot.model.transformer import Transformer

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class RankDevice:
    """A rank of the group, and its device."""

    rank: int
    ranks: int
    device: str
    backend: str
    timeout: timedelta

    def join(self, store: Store) -> torch.device:
        """Be this rank from now on."""
        device = torch.device(self.device)
        if device.type == "cuda":
            torch.cuda.set_device(device)  # kernels are launched on the current device
            torch.cuda.init()  # or DeviceMesh would choose another one
        distributed.init_process_group(
            self.backend, store=store, rank=self.rank, world_size=self.ranks, timeout=self.timeout
        )
        return device


@dataclass(frozen=True)
class FollowerStart:
    """All that a follower must know."""

    model: ModelConfig
    dtype: torch.dtype
    place: RankDevice
    threads: int
    port: int  # of the leader's store
    leader: int  # its process


class Follower:
    """The part of the model, its caches, and what is done with them."""

    def __init__(self, start: FollowerStart) -> None:
        store = TCPStore("127.0.0.1", start.port, start.place.ranks, timeout=start.place.timeout)
        self.device = start.place.join(store)
        self.model, self.cuts = build_part(Transformer, start.model, start.dtype, self.device)
        self.layers: Sequence[Cache | None] = ()

    @property
    def caches(self) -> list[Cache]:
        """Of the layers that have one."""
        return [cache for cache in self.layers if cache is not None]

    @torch.inference_mode()
    def do(self, command: Command) -> None:
        """One command of the leader."""
        match command:
            case MakeCaches():
                self.layers = self.model.make_caches(command.shape)
            case CacheBudget():
                smallest_cache_budget(self.device)
            case Hidden():
                self._hidden(command)
            case Read():
                self.model.hidden(self._received(command.shape, torch.int64))
            case Project():
                self.model.project(self._received(command.shape, command.dtype))
            case CopyCaches():
                copy_caches(self.caches, command.kind, command.copies, self.device)
            case ClearCaches():
                clear_caches(self.caches)
            case Load():
                load_part(self.model, self.cuts, None)

    def _hidden(self, command: Hidden) -> None:
        parts = self._received((sum(command.sizes),), torch.int64).split(command.sizes)
        tokens_BT, positions_BT = (each.view(command.rows, command.tokens) for each in parts[:2])
        self.model.hidden(
            tokens_BT,
            positions_BT,
            caches=self.layers,
            slots=parts[2],
            lengths=parts[3] if command.padded else None,
            pages=parts[4].view(command.rows, command.pages).int(),
            reach=command.reach,
        )

    def _received(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype, device=self.device)
        distributed.broadcast(tensor, 0)
        return tensor


def end_with(leader: int) -> None:
    """Be killed when the thread that started this process ends, also while this one is stopped (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != leader:  # it has ended before
            os._exit(0)


def follow(pipe: Connection) -> None:
    """Do what comes, until the pipe closes."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are the leader's, which may drain before it closes the pipe
        signal.signal(number, signal.SIG_IGN)
    start = pipe.recv()
    end_with(start.leader)
    torch.set_num_threads(start.threads)
    follower = Follower(start)
    while True:
        try:
            command = pipe.recv()
        except (EOFError, OSError):
            os._exit(0)  # leaving the group would mean waiting for the others
        follower.do(command)


if __name__ == "__main__":
    follow(Connection(int(sys.argv[1])))
