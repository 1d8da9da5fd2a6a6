"""Measures tokens/s, MFU, and where the time of a step went, without waiting for the device.

    seconds          between two settled steps on the wall clock (overlapping steps are not counted twice), validation left out
    tokens/s         the tokens of all ranks in that time
    MFU              tokens/s · training FLOPs per token / (devices · peak FLOP/s)       (PaLM, arXiv 2204.02311, appendix B)
    data wait        the loop stood still because no batch was there
    checkpoint       the loop stood still to save
    compute          the rest, communication with other ranks among it: the two overlap, and telling them apart would mean to wait

On a GPU the host runs ahead: while it waits for data the device may still be busy, so the share of data wait is an upper bound.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

GIB = 1024**3
PAGE = resource.getpagesize()

Doing = Literal["data", "checkpoint", "validation"]


class Throughput:
    """A clock that is read once a step. `flops` are those of one token, `peak` those of all devices in a second."""

    def __init__(self, device: torch.device, flops: float, peak: float | None) -> None:
        self.device, self.flops, self.peak = device, flops, peak
        self.start()

    def start(self) -> None:
        """The first step begins."""
        self.settled = time.monotonic()
        self.spent: dict[Doing, float] = {"data": 0.0, "checkpoint": 0.0, "validation": 0.0}

    @contextmanager
    def doing(self, what: Doing) -> Iterator[None]:
        """The time inside was spent on this."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] += time.monotonic() - began

    def settle(self, tokens: int) -> dict[str, float]:
        """The numbers of a step with so many tokens over all ranks; the next one begins."""
        now, spent = time.monotonic(), self.spent
        seconds = max(now - self.settled - spent["validation"], 1e-9)
        rate = tokens / seconds
        self.start()
        numbers = {
            "seconds": seconds,
            "tokens_per_second": rate,
            "data_wait_share": spent["data"] / seconds,
            "checkpoint_stall": spent["checkpoint"],
            "memory_gib": memory(self.device) / GIB,
        }
        return numbers if self.peak is None else {**numbers, "mfu": rate * self.flops / self.peak}


def memory(device: torch.device) -> int:
    """Bytes in use: the most that the GPU's tensors have taken; on a CPU what is resident of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    pages = Path("/proc/self/statm")
    if pages.exists():
        return int(pages.read_text(encoding="ascii").split()[1]) * PAGE
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
