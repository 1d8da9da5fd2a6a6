"""Where the time went, with a clock that only moves when told to."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import pytest
import torch

from ingot.train.throughput import GIB, Throughput, memory

CPU = torch.device("cpu")


class Time:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 50.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def passes(self, seconds: float) -> None:
        self.now += seconds


def test_the_time_between_two_settled_steps_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time(monkeypatch)
    throughput = Throughput(CPU, flops=6e9, peak=1e13)
    with throughput.doing("data"):
        clock.passes(1)
    clock.passes(3)
    with throughput.doing("checkpoint"):
        clock.passes(0.5)
    with throughput.doing("validation"):
        clock.passes(100)
    with throughput.doing("data"):
        clock.passes(0.5)
    numbers = throughput.settle(1000)
    assert numbers.pop("memory_gib") > 0.01
    assert numbers == pytest.approx(
        {
            "seconds": 5,
            "tokens_per_second": 200,
            "data_wait_share": 0.3,
            "checkpoint_stall": 0.5,
            "mfu": 200 * 6e9 / 1e13,
        }
    )
    clock.passes(2)
    again = throughput.settle(1000)
    assert (again["seconds"], again["data_wait_share"], again["tokens_per_second"]) == (2, 0, 500), (
        "nothing is counted twice"
    )


def test_without_a_known_peak_there_is_no_mfu() -> None:
    assert "mfu" not in Throughput(CPU, flops=1, peak=None).settle(1)


def test_memory_is_what_the_kernel_says() -> None:
    """VmRSS of /proc, in kB; two looks may differ by what happens in between."""
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmRSS"))
    assert memory(CPU) == pytest.approx(int(line.split()[1]) * 1024, rel=0.02)
    before = memory(CPU)
    with mmap.mmap(-1, GIB // 16) as held:  # straight from the kernel: an allocator might have some left over
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        assert (memory(CPU) - before) / GIB == pytest.approx(1 / 16, rel=0.1)
