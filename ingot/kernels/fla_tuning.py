"""Lets flash-linear-attention's kernels try a few of their configurations instead of all, compiled at the same time.

Its kernels choose block sizes, warps and stages at their first call, by compiling and timing every configuration: up to 36 of a
kernel, 39 in all for gated DeltaNet, 138 for KDA, one after the other (2 s each) and again for each shape of heads. On an H200
KDA was not through after three minutes. The FEW that are next to the usual choice (4 warps, 3 stages, blocks of 64) are tried,
and threads compile them before the first is timed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
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
    "kda.chunk_intra_token_parallel",
    "kda.wy_fast",
    "utils.cumsum",
)


@cache
def try_few() -> None:
    """From now on, in this process."""
    for kernel in tuned_kernels():
        kernel.configs = sorted(kernel.configs, key=_from_usual)[:FEW]
        kernel.prune_configs = partial(_compiled, kernel, kernel.prune_configs)


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


def _compiled(kernel: Any, prune: Callable[[dict[str, Any]], list[Any]], given: dict[str, Any]) -> list[Any]:
    """The configurations that Triton's tuner is about to time, compiled: it asks for them at the first call of a shape."""
    from triton.runtime._async_compile import AsyncCompileMode

    configs = prune(given)
    rest = {name: value for name, value in given.items() if name != "warmup"}
    with ThreadPoolExecutor(os.cpu_count()) as threads, AsyncCompileMode(threads, ignore_errors=True):
        for config in configs:  # one that cannot be compiled fails again when it is timed, and is left out there
            kernel.fn.warmup(*kernel.nargs.values(), **rest, **config.all_kwargs())
    return configs


def _from_usual(config: Any) -> float:
    """How far a configuration is from the usual one, in doublings."""
    blocks = sum(abs(math.log2(size / 64)) for size in config.kwargs.values() if isinstance(size, int) and size > 0)
    return abs(math.log2(config.num_warps / 4)) + abs(config.num_stages - 3) + blocks
