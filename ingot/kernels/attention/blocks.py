"""Blocks of queries for definitions that hold a tensor of queries × keys: no such tensor outlives its block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BLOCK_NUMBERS = 2**27  # numbers in the largest tensor of a block: 512 MiB of float32


def blocks(length: int, numbers_per_query: int) -> Iterator[slice]:
    """Ranges of queries whose largest tensor stays within BLOCK_NUMBERS."""
    step = max(1, BLOCK_NUMBERS // numbers_per_query)
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def recomputed(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """function(*arguments), whose inner tensors are made again in the backward pass instead of kept."""
    if not torch.is_grad_enabled():
        return function(*arguments)
    result = checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(result, Tensor)
    return result


def summed_in_float32(x: Tensor) -> Tensor:
    """A copy whose gradient is summed over the blocks in float32: thousands of queries may have chosen the same key."""
    return x.to(torch.promote_types(x.dtype, torch.float32)) if torch.is_grad_enabled() else x
