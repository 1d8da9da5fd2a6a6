"""Lets flash-linear-attention's kernels try a few of their configurations instead of all.

Its kernels choose block sizes, warps and stages at their first call, by compiling and timing every configuration: up to 36 of a
kernel, 39 in all for gated DeltaNet, 138 for KDA, one after the other and again for each shape of heads. On an H200 KDA was not
through after three minutes. The FEW that are next to the usual choice (4 warps, 3 stages, blocks of 64) are tried.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

FEW = 4
MODULES: tuple[str, ...] = (
    "common.chunk_delta_h",
    "common.chunk_o",
    "gated_delta_rule.chunk_fwd",
    "gated_delta_rule.wy_fast",
    "gla.chunk",
    "kda.chunk_bwd",
    "kda.chunk_intra",
    "kda.wy_fast",
    "utils.cumsum",
)


@cache
def try_few() -> None:
    """From now on, in this process."""
    for kernel in tuned_kernels():
        kernel.configs = sorted(kernel.configs, key=_from_usual)[:FEW]


def tuned_kernels() -> list[Any]:
    """Triton's tuners of the modules whose functions we call."""
    from triton.runtime.autotuner import Autotuner

    found: dict[int, Any] = {}
    for name in MODULES:
        for value in vars(import_module(f"fla.ops.{name}")).values():
            while not isinstance(value, Autotuner) and hasattr(value, "fn"):
                value = value.fn  # a decorator around it
            if isinstance(value, Autotuner):
                found[id(value)] = value
    return list(found.values())


def _from_usual(config: Any) -> float:
    """How far a configuration is from the usual one, in doublings."""
    blocks = sum(abs(math.log2(size / 64)) for size in config.kwargs.values() if isinstance(size, int) and size > 0)
    return abs(math.log2(config.num_warps / 4)) + abs(config.num_stages - 3) + blocks
