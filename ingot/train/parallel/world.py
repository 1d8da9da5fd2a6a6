"""Coordinates the processes of one run: how they find each other, which stages they run together, and how they end.

torchrun (or `ingot run --processes N`, launch.py) starts the same command N times. The processes share a store of keys and
values. The main rank alone locks the run folder, decides what to do, runs the stages of a single process, and writes files and
progress. The others wait for its orders:

    stage NAME     take part in this stage: all processes form a group, run the stage, and dissolve the group
    end            there is nothing more to do

Outside such a stage there is no process group, so a stage of one process runs as if it were the only process. Every
wait ends: the main rank writes a heartbeat to the store, and a process that sees none for SILENCE gives up; a stage's collectives
have a deadline (TIMEOUT); a process that fails ends at once, and the launcher then ends the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from ingot.train.device import choose_device
from ingot.train.parallel.launch import PARENT, RENDEZVOUS, in_world
from ingot.workspace.errors import IngotError, Interrupted
from ingot.workspace.interrupt import StopSignal

TIMEOUT = timedelta(minutes=10)
BEAT_SECONDS, POLL_SECONDS = 1.0, 0.05
SILENCE_SECONDS = 300.0
FAREWELL_SECONDS = 10.0
END, STAGE = "end", "stage "


@dataclass
class World:
    """This process among those of the run. A process by itself needs no store."""

    rank: int = 0
    size: int = 1
    store: Store | None = None
    _orders: int = field(default=0, init=False)  # given or taken so far

    @property
    def leads(self) -> bool:
        """Whether this is the first process."""
        return self.rank == 0

    @contextmanager
    def stage(self, name: str, device: str) -> Iterator[None]:
        """All processes run the body; the main rank calls the others."""
        if self.store is None:
            yield
            return
        if self.leads:
            self._order(STAGE + name)
        backend = "cpu:gloo,cuda:nccl" if choose_device(device).type == "cuda" else "gloo"
        own = PrefixStore(f"stage/{self._orders}", self.store)
        distributed.init_process_group(backend, store=own, rank=self.rank, world_size=self.size, timeout=TIMEOUT)
        try:
            yield  # after a failure the group stays: leaving it would mean waiting for processes that may hang
        except Interrupted:  # all ranks agreed to it: none is left in a collective
            distributed.destroy_process_group()
            raise
        distributed.destroy_process_group()

    def orders(self) -> Iterator[str]:
        """The stages to take part in, as the main rank calls them."""
        while (order := self._next()) != END:
            yield order.removeprefix(STAGE)

    def end(self, patience: float) -> None:
        """The main rank's last order; waits so long for the others to read it, because the store may end with this process."""
        if self.store is None or not self.leads:
            return
        self._order(END)
        deadline = time.monotonic() + patience
        while self.store.add("ended", 0) < self.size - 1 and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)

    def leader_ends(self) -> bool:
        """Whether the main rank gives up too, now or in a moment: it then reports why."""
        assert self.store is not None
        deadline = time.monotonic() + FAREWELL_SECONDS
        while time.monotonic() < deadline:
            if self.store.check([f"order/{self._orders + 1}"]):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _order(self, order: str) -> None:
        assert self.store is not None
        self._orders += 1
        self.store.set(f"order/{self._orders}", order)

    def _next(self) -> str:
        """The next order, whenever it comes; an error if the main rank's heartbeat has stopped."""
        assert self.store is not None
        key, beats, last_beat = f"order/{self._orders + 1}", -1, time.monotonic()
        while not self.store.check([key]):
            now = self.store.add("beats", 0)
            if now != beats:
                beats, last_beat = now, time.monotonic()
            if time.monotonic() - last_beat > SILENCE_SECONDS:
                raise IngotError(
                    f"process {self.rank} has had no heartbeat of the first one for {SILENCE_SECONDS:g} seconds",
                    fix="look at its output; the run goes on from its last checkpoint when it is started again",
                )
            time.sleep(POLL_SECONDS)
        self._orders += 1
        order = self.store.get(key).decode()
        if order == END:
            self.store.add("ended", 1)
        return order


@contextmanager
def join_world(stop: StopSignal) -> Iterator[World]:
    """Connect to the other processes; a process by itself is a world of one. The main rank sends heartbeats while inside."""
    if not in_world():
        yield World()
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    store, _, _ = next(iter(rendezvous(os.environ.get(RENDEZVOUS, "env://"), rank, size)))
    world = World(rank, size, PrefixStore("ingot", store))
    left = threading.Event()
    heart = threading.Thread(target=_beat, args=(world, left, stop), daemon=True)
    heart.start()
    patience = 0.0  # after a failure the others may hang: the launcher ends them
    try:
        yield world
        patience = FAREWELL_SECONDS
    except Interrupted:
        patience = FAREWELL_SECONDS
        raise
    finally:
        left.set()
        heart.join()
        world.end(patience)


def _beat(world: World, left: threading.Event, stop: StopSignal) -> None:
    """The main rank's heartbeat; asks for a stop when the launcher is gone."""
    assert world.store is not None
    parent = int(os.environ.get(PARENT, "0"))
    while not left.wait(BEAT_SECONDS):
        if world.leads:
            world.store.add("beats", 1)
        if parent and os.getppid() != parent:
            stop.request()
