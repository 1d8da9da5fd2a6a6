"""Runs cases in groups of processes, one case after the other in each group; every rank writes its numbers into a folder.

    cpu     processes of this machine, gloo between them
    card    processes that share one GPU; what they exchange goes through memory (staged.py), for NCCL refuses them
    gpus    a GPU for each process, NCCL

A group takes longer to start than a case to run, so it runs many; several groups run side by side. When a case fails, the group
ends, and another one goes on with the case after it. Every wait has a deadline.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
from torch import distributed
from torch._C._distributed_c10d import FileStore

from ingot.train.layouts.cases import Case, read_case
from ingot.train.layouts.staged import STAGED
from ingot.train.layouts.steps import Numbers, train_steps
from ingot.train.parallel.config import MeshConfig
from ingot.workspace.files import atomic_file

CASE_SECONDS = 300.0  # the longest that a case may take, its group's start and compilation included
TIMEOUT = timedelta(seconds=60)  # of an exchange
POLL_SECONDS = 0.05
FAREWELL_SECONDS = 10.0
ERROR = ".error"
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
ENVIRONMENT = {  # all processes are on this machine, and many compile at a time
    "GLOO_SOCKET_IFNAME": LOOPBACK,
    "NCCL_SOCKET_IFNAME": LOOPBACK,
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


@dataclass(frozen=True)
class CaseMachine:
    """What cases run on, and how many processes run at a time."""

    how: Literal["cpu", "card", "gpus"]
    slots: int

    @property
    def device(self) -> str:
        """The kind of device."""
        return "cpu" if self.how == "cpu" else "cuda"


@dataclass(frozen=True)
class CaseJob:
    """One run of a case. `scales_of`: the mesh whose float8 scales one process has (float8_shards.py)."""

    name: str
    case: Case
    scales_of: MeshConfig | None = None

    def file(self, folder: Path, rank: int) -> Path:
        """Where a rank writes its numbers; beside it, with ERROR, why there are none."""
        return folder / f"{self.name}-{rank}.pickle"


Done = Callable[[CaseJob, "list[Numbers] | str"], None]


def choose_machine(device: str, processes: int) -> CaseMachine:
    """Processes of the CPU, a GPU for each of `processes` where there are so many, or one card that all of them share."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = torch.cuda.device_count() if device == "cuda" else 0
    if gpus >= max(processes, 2):
        return CaseMachine("gpus", gpus)
    return CaseMachine("cpu" if device == "cpu" else "card", cores)


def run_jobs(jobs: Sequence[CaseJob], machine: CaseMachine, folder: Path, done: Done) -> None:
    """Run the jobs, those of as many processes side by side; `done` gets each with what its ranks found, or why nothing."""
    for size in sorted({job.case.processes for job in jobs}):
        same = [job for job in jobs if job.case.processes == size]
        groups = min(len(same), max(1, machine.slots // size))
        with ThreadPoolExecutor(groups) as pool:
            shares = [
                pool.submit(_run_group, same[number::groups], machine, number * size, folder, done)
                for number in range(groups)
            ]
            for share in shares:
                share.result()


def _run_group(jobs: Sequence[CaseJob], machine: CaseMachine, first: int, folder: Path, done: Done) -> None:
    """Run jobs of as many processes each; `first` is the number of this group's first process on the machine."""
    left = list(jobs)
    while left:
        finished, problem = _run_once(left, machine, first, folder, done)
        if finished < len(left):
            done(left[finished], problem)
        left = left[finished + 1 :]


def _run_once(jobs: Sequence[CaseJob], machine: CaseMachine, first: int, folder: Path, done: Done) -> tuple[int, str]:
    """Start a group, and wait until it has run its jobs or one has failed; returns how many it has run, and what went wrong."""
    context, size, finished = multiprocessing.get_context("spawn"), jobs[0].case.processes, 0
    store = folder / f"store-{jobs[0].name}"
    processes = [
        context.Process(target=_work, args=(rank, size, list(jobs), machine, first, store, folder))
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + CASE_SECONDS
    try:
        while finished < len(jobs):
            alive = any(process.is_alive() for process in processes)
            files = [jobs[finished].file(folder, rank) for rank in range(size)]
            if all(file.exists() for file in files):
                done(jobs[finished], [_read(file) for file in files])
                finished, deadline = finished + 1, time.monotonic() + CASE_SECONDS
                continue
            if written := [file.with_suffix(ERROR) for file in files if file.with_suffix(ERROR).exists()]:
                return finished, written[0].read_text(encoding="utf-8")
            if not alive:
                return finished, f"the processes ended with {[process.exitcode for process in processes]}"
            if time.monotonic() > deadline:
                return finished, f"nothing within {CASE_SECONDS:g} seconds"
            time.sleep(POLL_SECONDS)
        return finished, ""
    finally:
        for process in processes:
            process.join(0 if finished < len(jobs) else FAREWELL_SECONDS)
            process.kill()
            process.join()


def _work(
    rank: int, size: int, jobs: Sequence[CaseJob], machine: CaseMachine, first: int, store: Path, folder: Path
) -> None:
    """What every process of a group does."""
    torch.set_num_threads(1)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if machine.device == "cuda":
        torch.cuda.set_device((first + rank) % torch.cuda.device_count())
        os.environ["LOCAL_RANK"] = str(torch.cuda.current_device())  # which a mesh of GPUs asks
    if size > 1:
        backend = {"cpu": "gloo", "card": STAGED, "gpus": "cpu:gloo,cuda:nccl"}[machine.how]
        distributed.init_process_group(
            backend, store=FileStore(str(store), size), rank=rank, world_size=size, timeout=TIMEOUT
        )
    for job in jobs:
        file = job.file(folder, rank)
        try:
            numbers = run_job(job, machine.device)
        except BaseException:  # noqa: BLE001 - the parent reports it
            with atomic_file(file.with_suffix(ERROR)) as part:
                part.write_text(traceback.format_exc(), encoding="utf-8")
            os._exit(1)  # the others may hang in an exchange: the parent ends them
        with atomic_file(file) as part:
            part.write_bytes(pickle.dumps(numbers))
    if size > 1:
        distributed.destroy_process_group()


def run_job(job: CaseJob, device: str) -> Numbers:
    """The numbers of this rank."""
    model, training = read_case(job.case, device)
    dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
    if training.precision == "float8" and device == "cpu":
        dtype = (
            torch.float64
        )  # float32 adds up in another order, which rounds some values to another neighbour in float8
    torch._dynamo.reset()  # what a case before has compiled
    return train_steps(model, training, dtype, scales_of=job.scales_of)


def _read(file: Path) -> Any:
    numbers = pickle.loads(file.read_bytes())
    file.unlink()
    return numbers
