"""Gives each of flash-linear-attention's kernels one configuration, so that a run begins at once and repeats to the bit.

Its kernels choose block sizes, warps and stages at their first call, by compiling and timing every configuration: up to 36 of a
kernel, 39 in all for gated DeltaNet, 138 for KDA, one after the other (2 s each) and again for each shape of heads. On an H200
KDA was not through after three minutes. And the clock decides: another run, or a batch of another shape, adds up in another
order. Here each has the configuration that is next to the usual one (4 warps, 3 stages, blocks of 64).
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any

MODULES = (  # whose functions we call
    "common.chunk_delta_h",
    "common.chunk_o",
    "gated_delta_rule.chunk_fwd",
    "gated_delta_rule.wy_fast",
    "gla.chunk",
    "kda.chunk_bwd",
    "kda.chunk_intra",
    "kda.chunk_intra_token_parallel",
    "kda.wy_fast",
    "utils.cumsum",
)


@cache
def fix_configurations() -> dict[str, list[Any]]:
    """From now on, in this process. What each kernel had to choose from, by its name."""
    given = {}
    for name, kernel in tuned_kernels(MODULES).items():
        given[name] = kernel.configs
        kernel.configs = [min(kernel.configs, key=_from_usual)]
    return given


def tuned_kernels(modules: tuple[str, ...]) -> dict[str, Any]:
    """Triton's tuners in these modules of fla.ops, by the names of their kernels."""
    from triton.runtime.autotuner import Autotuner

    found: dict[str, Any] = {}
    for module in modules:
        for value in vars(import_module(f"fla.ops.{module}")).values():
            while not isinstance(value, Autotuner) and hasattr(value, "fn"):
                value = value.fn  # a decorator around it
            if isinstance(value, Autotuner):
                found[f"{value.base_fn.__module__}.{value.base_fn.__name__}"] = value
    return found


def _from_usual(config: Any) -> float:
    """How far a configuration is from the usual one, in doublings."""
    blocks = sum(abs(math.log2(size / 64)) for size in config.kwargs.values() if isinstance(size, int) and size > 0)
    return abs(math.log2(config.num_warps / 4)) + abs(config.num_stages - 3) + blocks
