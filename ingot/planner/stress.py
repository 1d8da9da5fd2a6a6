"""A short stress test of this machine: speed, steadiness and correctness of matrix products, and correctness of memory.

Products: one matrix product again and again for a few seconds. Its speed is compared with the table (hardware.py); the last
third of the time with the first (a device that heats up and lowers its clock gets slower); and every result with the
first one, bit for bit: a product that comes out differently the second time is a broken device.
Memory: most of what is free (on a GPU) is filled with patterns of alternating bits and read back.
Clocks: what nvidia-smi says, if it is there.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from ingot.planner.check import Check, TooSlow, within
from ingot.planner.hardware import GPUS, MEASURED, Reached, find_gpu
from ingot.train.hardware import cpu_name
from ingot.workspace.errors import RecipeError

PRODUCT_SECONDS = 2.0
DEADLINE_SECONDS = 60.0
"""For any one stress of any one device; it should take PRODUCT_SECONDS, or the time of one pass over the memory."""
SMI_SECONDS = 10.0
SLOW = 0.8
"""Share of the expected speed, and of the first third's, below which a device is reported."""
HOT_CELSIUS = 85
GPU_MEMORY_SHARE, CPU_MEMORY_BYTES = 0.8, 256 * 1024**2
PATTERNS = (0x55, 0xAA)


@dataclass(frozen=True)
class StressProducts:
    """The results of the products on one device."""

    flops_per_second: float
    steadiness: float  # speed of the last third / speed of the first
    repeatable: bool


def stress_devices() -> Iterator[Check]:
    """The checks of every device that torch sees, or of the CPU."""
    if not torch.cuda.is_available():
        yield from _stress(torch.device("cpu"), cpu_name())
        return
    for number in range(torch.cuda.device_count()):
        yield from _stress(torch.device("cuda", number), torch.cuda.get_device_name(number))
    yield from check_clocks()


def _stress(device: torch.device, name: str) -> Iterator[Check]:
    where = str(device)
    try:
        yield judge_products(within(DEADLINE_SECONDS, lambda: measure_products(device)), where, name)
        yield judge_memory(within(DEADLINE_SECONDS, lambda: measure_memory(device)), where)
    except TooSlow:
        text = f"{name} did not answer within {DEADLINE_SECONDS:.0f} s"
        yield Check(f"{where} stress", "fail", text, "reset or replace the device; look at dmesg for Xid errors")


def measure_products(device: torch.device, seconds: float = PRODUCT_SECONDS) -> StressProducts:
    """Multiply the same two matrices until the time is over."""
    gpu = device.type == "cuda"
    size, dtype = (8192, torch.bfloat16) if gpu else (768, torch.float32)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(device, dtype) for _ in range(2))
    first = left @ right
    times: list[float] = []
    same = torch.ones((), dtype=torch.bool, device=device)
    began = time.perf_counter()
    while not times or sum(times) < seconds:
        result = left @ right
        _wait(device)
        now = time.perf_counter()
        times.append(now - began)
        same &= (result == first).all()  # not timed
        _wait(device)
        began = time.perf_counter()
    third = max(1, len(times) // 3)
    steadiness = sum(times[:third]) / sum(times[-third:])
    return StressProducts(2 * size**3 * len(times) / sum(times), steadiness, bool(same))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def judge_products(products: StressProducts, where: str, name: str) -> Check:
    """Compare with the table, with itself, and with the first result."""
    check, speed = f"{where} products", products.flops_per_second
    text = f"{name}: {speed / 1e12:,.0f} TFLOP/s" if speed >= 1e12 else f"{name}: {speed / 1e9:,.0f} GFLOP/s"
    try:
        expected = Reached().bfloat16 * find_gpu(name).bfloat16 / GPUS[MEASURED].bfloat16
    except RecipeError:
        expected = None
    if not products.repeatable:
        return Check(check, "fail", f"{text}; the same product gave different results", "replace the device")
    if expected is not None:
        text += f", {speed / expected:.0%} of what is expected"
        if speed < SLOW * expected:
            return Check(check, "warn", text, "look for other processes, power limits and heat (nvidia-smi -q)")
    if products.steadiness < SLOW:
        slower = f"{text}; it fell to {products.steadiness:.0%} within seconds"
        return Check(check, "warn", slower, "look at cooling, power limits and other processes")
    return Check(check, "ok", f"{text}, steady, the same bits every time")


def measure_memory(device: torch.device) -> tuple[int, int]:
    """Bytes that were written and read back, and how many of them came back changed."""
    size = CPU_MEMORY_BYTES
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        size = int(free * GPU_MEMORY_SHARE)
    pieces = [
        torch.empty(min(1 << 30, size - start), dtype=torch.uint8, device=device) for start in range(0, size, 1 << 30)
    ]
    changed = 0
    for pattern in PATTERNS:
        for piece in pieces:
            piece.fill_(pattern)
        changed += sum(int((piece != pattern).sum()) for piece in pieces)
    del pieces
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return size, changed


def judge_memory(measured: tuple[int, int], where: str) -> Check:
    """Any changed byte is a fault."""
    size, changed = measured
    text = f"{size / 1024**3:.1f} GiB filled with {len(PATTERNS)} patterns and read back"
    if changed:
        return Check(
            f"{where} memory", "fail", f"{text}: {changed} bytes changed", "replace the device; its memory is broken"
        )
    return Check(f"{where} memory", "ok", f"{text}, nothing changed")


def check_clocks() -> Iterator[Check]:
    """Clock, temperature and power of every GPU, straight after the stress; nothing if there is no nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return
    fields = "index,clocks.sm,clocks.max.sm,temperature.gpu,power.draw,power.limit"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=SMI_SECONDS, check=True).stdout
    except (subprocess.SubprocessError, OSError) as error:
        yield Check("clocks", "warn", f"nvidia-smi failed: {error}", "look at the driver")
        return
    for line in output.strip().splitlines():
        yield judge_clocks(line)


def judge_clocks(line: str) -> Check:
    """One line of nvidia-smi: index, clock, highest clock, temperature, power, its limit."""
    index, clock, most, heat, power, limit = (part.strip() for part in line.split(","))
    name, text = f"cuda:{index} clocks", f"{clock} of {most} MHz, {heat} °C, {power} of {limit} W"
    if heat.isdecimal() and int(heat) >= HOT_CELSIUS:
        return Check(name, "warn", text, "look at the cooling: it will lower its clock")
    return Check(name, "ok", text)
