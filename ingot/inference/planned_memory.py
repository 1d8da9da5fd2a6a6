"""Estimates the bytes of an engine before there is one: a model's weights, a copy to sample from, caches.

Sizes are those of the real modules and caches, built on the meta device. Not counted: what a step of the engine computes with.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ingot.model.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor

    from ingot.model.transformer import Transformer

MASTER = 4
"""Bytes of a weight as it is trained, and sampled with on a CPU: float32."""
NARROW = 2
"""Bytes of a weight that is sampled with on a GPU: bfloat16."""


def weight_bytes(model: ModelConfig) -> int:
    """Weights and buffers of a whole model as a checkpoint is loaded, in float32."""
    built = _built(model)
    return _bytes((*built.parameters(), *built.buffers()))


def sampling_width(precision: str, device: int | None) -> int:
    """Bytes of a weight that is sampled with at this `sampling_precision` (train/device.py); `device` is None for a CPU."""
    auto = precision == "auto" and device is not None
    return NARROW if auto or precision in ("bfloat16", "float8") else MASTER


def copy_bytes(model: ModelConfig, precision: str, width: int) -> int:
    """A copy that is sampled from at this `sampling_precision`."""
    if precision != "float8":
        return weight_bytes(model) * width // MASTER
    import torch

    from ingot.inference.weights import empty_model
    from ingot.train.device import FLOAT8

    with torch.device("meta"):
        built = empty_model(model, FLOAT8)
    return _bytes((*built.parameters(), *built.buffers()))


def cache_bytes(model: ModelConfig, slots: int, length: int, free: int | None, width: int = MASTER) -> int:
    """The engine's caches, of which pages take at most a share of what is free; without a number, of what a CPU gives them."""
    from ingot.inference.memory import CPU_BYTES, GPU_SHARE, simple_caches, size_caches, size_chunk

    built = _built(model)
    piece = min(size_chunk(built, "cpu" if free is None else "cuda"), length)
    cache_shape = size_caches(built, slots, length, piece=piece, cache_bytes=1 << 62)
    caches = [one for each in built.make_caches(cache_shape) for one in simple_caches(each)]
    pages = sum(_bytes(cache.tensors()) for cache in caches if cache.in_pages) * width // MASTER
    owned = sum(_bytes(cache.tensors()) for cache in caches if not cache.in_pages) * width // MASTER
    return owned + min(pages, CPU_BYTES if free is None else int(GPU_SHARE * max(0, free)))


def _built(model: ModelConfig) -> Transformer:
    import torch

    from ingot.model.transformer import Transformer

    with torch.device("meta"):
        return Transformer(model)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)
