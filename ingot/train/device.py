"""Chooses the device and the precision of matrix products."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from ingot.workspace.errors import IngotError


def choose_device(asked: str) -> torch.device:
    """The device that `auto`, `cpu` or `cuda` means on this machine."""
    if asked == "cuda" and not torch.cuda.is_available():
        raise IngotError("device: cuda was asked for, but torch sees no GPU", fix="use device: auto or cpu")
    return torch.device("cuda" if asked == "cuda" or (asked == "auto" and torch.cuda.is_available()) else "cpu")


def cpu_has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 matrices in hardware; elsewhere it is emulated hundreds of times slower."""
    flags = Path("/proc/cpuinfo")
    words = set(flags.read_text(encoding="utf-8").split()) if flags.exists() else set()
    return bool(words & {"bf16", "avx512_bf16", "amx_bf16"})


def choose_precision(asked: str, device: torch.device) -> torch.dtype:
    """The dtype of matrix products for `auto`, `float32` or `bfloat16`; for `float8` that of all but the large ones."""
    if asked in ("auto", "float8"):
        fast = torch.cuda.is_bf16_supported() if device.type == "cuda" else cpu_has_bfloat16()
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if asked == "bfloat16" else torch.float32


FLOAT8 = torch.float8_e4m3fn


def choose_sampling_precision(asked: str, device: torch.device) -> torch.dtype:
    """The dtype of the weights that are sampled with for `auto`, `float32`, `bfloat16` or `float8`.

    In float8 are the large products; what else there is then is in bfloat16 (`stored_dtype`).
    """
    if asked == "float8":
        return FLOAT8
    if asked == "auto":
        return choose_precision(asked, device) if device.type == "cuda" else torch.float32
    return choose_precision(asked, device)


def choose_frozen_precision(asked: str, device: torch.device) -> torch.dtype:
    """The dtype of weights that a training stage only reads (teachers, reward models): that of samplers.

    `asked` is the precision of the stage: one in float32 reads them in float32 on a GPU, too.
    """
    return choose_sampling_precision("float32" if asked == "float32" else "auto", device)


def stored_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of weights that are no float8 products of a model which is sampled from in `dtype`."""
    return torch.bfloat16 if dtype == FLOAT8 else dtype


def precision_context(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """A context in which matrix products run in `dtype`; weights stay as they are, in float32 or wider."""
    return torch.autocast(device.type, dtype) if dtype.itemsize == 2 else nullcontext()
