"""Running a function on several ranks of a CPU process group, and getting back what each returned.

The processes are forked from the server of tests/forking.py, so that starting four of them costs milliseconds.
An exception of any rank is raised here with its traceback; a rank that hangs is killed at the deadline.
"""

from __future__ import annotations

import faulthandler
import queue
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import FileStore

from tests.forking import forking, freeze

DEADLINE_SECONDS = 120.0


def run_ranks(world: int, function: Callable[..., Any], store: Path, *arguments: Any) -> list[Any]:
    """`function(*arguments)` on ranks 0..world-1 with gloo between them; their results in order.

    `store` is a file that does not exist yet; `function` must be importable, and results picklable (tensors are copied).
    """
    context = forking()
    results: Any = context.Queue()
    processes = [
        context.Process(target=_work, args=(rank, world, function, str(store), arguments, results))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    found: dict[int, Any] = {}
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while len(found) < world:
            try:
                rank, value, error = results.get(timeout=1.0)
            except queue.Empty:
                dead = [number for number, each in enumerate(processes) if each.exitcode not in (None, 0)]
                assert not dead, f"ranks {dead} died"
                assert time.monotonic() < deadline, f"only ranks {sorted(found)} of {world} ended in time"
                continue
            assert error is None, f"rank {rank} of {world}:\n{error}"
            found[rank] = value
    finally:
        for process in processes:
            process.kill() if len(found) < world else process.join(10)
    codes = [process.exitcode for process in processes]
    assert all(code == 0 for code in codes), (
        f"the ranks have said everything, and end with {codes}"
    )  # a signal is a negative number
    return [found[rank] for rank in range(world)]


def _work(
    rank: int, world: int, function: Callable[..., Any], store: str, arguments: tuple[Any, ...], results: Any
) -> None:
    faulthandler.enable()  # a crash says in which threads
    freeze()
    distributed.init_process_group(
        "gloo", store=FileStore(store, world), rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    try:
        value, error = function(*arguments), None
    except BaseException:  # noqa: BLE001 - it is raised again by the parent
        value, error = None, traceback.format_exc()
    results.put((rank, plain(value), error))
    results.close()
    results.join_thread()
    if error is None:
        distributed.destroy_process_group()


def plain(value: Any) -> Any:
    """With tensors as numpy arrays: pickled by value, not by shared memory that ends with the process."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(each) for each in value)
    return value
