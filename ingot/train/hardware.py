"""Peak FLOP/s of devices, as their makers state them, for MFU; and how much memory the loss may take.

NVIDIA's data sheets (A100 SXM, H100 SXM and PCIe, H200, L40S, HGX B200, GeForce RTX 4090 with float32 accumulation). Where a data
sheet prints the rate with sparsity, this is half of it. A device that is not listed has no MFU: a wrong one is worse than none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

TERA = 10**12
LOGITS_SHARE = 1 / 32

# part of the device's name, as torch gives it -> (bfloat16, float8); the first that fits counts
PEAKS: tuple[tuple[str, float, float | None], ...] = (
    ("H100 PCIe", 756 * TERA, 1513 * TERA),
    ("H100", 989 * TERA, 1979 * TERA),
    ("H800", 989 * TERA, 1979 * TERA),
    ("H200", 989 * TERA, 1979 * TERA),
    ("B200", 2250 * TERA, 4500 * TERA),
    ("A100", 312 * TERA, None),
    ("A800", 312 * TERA, None),
    ("L40S", 362 * TERA, 733 * TERA),
    ("RTX 4090", 165 * TERA, 330 * TERA),
)


def peaks(name: str) -> tuple[float, float | None] | None:
    """The peaks of the device called `name` in bfloat16 and float8; None if it is not known."""
    found = (each for each in PEAKS if each[0].lower() in name.lower())
    return next(((bfloat16, float8) for _, bfloat16, float8 in found), None)


def peak_flops(name: str, precision: str) -> float | None:
    """The peak of the device called `name` in bfloat16 or float8; None if it is not known, or for float32."""
    found = peaks(name)
    return None if found is None else dict(zip(("bfloat16", "float8"), found, strict=True)).get(precision)


def bytes_of_logits(device_bytes: int) -> int:
    """How much of a device's memory the logits of one chunk may take (fused_head.py).

    Each chunk reads and writes all of the head's gradient, so few large ones are faster: 1 % of a step at 0.15B on one H200,
    with 4 GiB instead of 2. A small device has less to spare.
    """
    return int(LOGITS_SHARE * device_bytes)


def device_name(device: torch.device) -> str:
    """The name of the device."""
    if device.type != "cuda":
        return device.type
    import torch

    return torch.cuda.get_device_name(device)


def cpu_name() -> str:
    """The CPU, with the threads that torch uses."""
    import torch

    threads = torch.get_num_threads()
    return f"CPU, {threads} thread{'s' * (threads != 1)}"
