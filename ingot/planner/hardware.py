"""Figures of devices: what their makers state, and what was measured.

Stated (NVIDIA's data sheets of the A100 80GB SXM, H100 SXM, H200 SXM and HGX B200): dense bfloat16 and float8 products
(train/hardware.py), memory bandwidth, NVLink per direction. `memory` is what torch reports as the device's total, which is
what a run can have. The network is one 400 Gb/s adapter per device (200 Gb/s for the A100), as in DGX systems. The H800 is an
H100 whose NVLink was narrowed to 400 GB/s (DeepSeek-V3, arXiv 2412.19437, section 3.1).

Measured, on one H200 with torch 2.11 (`MEASURED`): what kernels of a useful size reach. No other device was measured: other
devices are taken to reach the same share of what is stated of them, which is an assumption and printed as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.train.hardware import TERA, peaks
from ingot.workspace.errors import RecipeError

GIB = 1024**3
GIGA = 10**9
NODE = 8
"""Devices that NVLink joins."""


@dataclass(frozen=True)
class Gpu:
    """One device. Products in FLOP/s, bandwidths in bytes per second and direction, memory in bytes."""

    name: str
    bfloat16: float
    float8: float | None
    memory: int
    memory_bandwidth: float
    nvlink: float
    network: float
    multiprocessors: int


@dataclass(frozen=True)
class Reached:
    """Speeds that kernels reached on one H200: FLOP/s and bytes per second."""

    bfloat16: float = 788 * TERA
    float8: float = 1433 * TERA
    attention: float = 518 * TERA  # cuDNN, forward and backward
    grouped: float = 647 * TERA
    copy: float = 4.3 * TERA


def _gpu(name: str, gib: float, memory_bandwidth: float, nvlink: float, network: float, multiprocessors: int) -> Gpu:
    stated = peaks(name)
    assert stated is not None
    return Gpu(name, *stated, int(gib * GIB), memory_bandwidth, nvlink, network, multiprocessors)


GPUS: Mapping[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _gpu("a100", 79.2, 2.04 * TERA, 300 * GIGA, 25 * GIGA, 108),
        _gpu("h100", 79.1, 3.35 * TERA, 450 * GIGA, 50 * GIGA, 132),
        _gpu("h800", 79.1, 3.35 * TERA, 200 * GIGA, 50 * GIGA, 132),
        _gpu("h200", 139.8, 4.8 * TERA, 450 * GIGA, 50 * GIGA, 132),
        _gpu("b200", 178.3, 7.7 * TERA, 900 * GIGA, 50 * GIGA, 148),
    )
}
MEASURED = "h200"


def find_gpu(name: str) -> Gpu:
    """The device of this name; `NVIDIA H200` and the like are understood."""
    known = next((gpu for key, gpu in GPUS.items() if key in name.lower()), None)
    if known is None:
        raise RecipeError(f"no figures are known for the device {name!r}", fix=f"one of {', '.join(GPUS)}")
    return known


def reached(gpu: Gpu, product: float | None = None) -> Reached:
    """The speeds of kernels on `gpu`: the H200's measured shares. `product` is a measured bfloat16 speed to scale by instead."""
    base, measured = GPUS[MEASURED], Reached()
    scale = gpu.bfloat16 / base.bfloat16 if product is None else product / measured.bfloat16
    float8 = measured.float8 * scale if gpu.float8 else measured.bfloat16 * scale
    copy = measured.copy * gpu.memory_bandwidth / base.memory_bandwidth
    return Reached(measured.bfloat16 * scale, float8, measured.attention * scale, measured.grouped * scale, copy)
