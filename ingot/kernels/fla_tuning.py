"""Gives each of flash-linear-attention's kernels one configuration: a run begins at once, and no clock decides how it adds up.

Its kernels choose block sizes, warps and stages at their first call, by compiling and timing every configuration: up to 36 of a
kernel, 39 in all for gated DeltaNet, 138 for KDA, one after the other (2 s each) and again for each shape of heads. On an H200
KDA was not through after three minutes. And the clock decides: another run, or a batch of another shape, may add up in
another order. Here each has the configuration that is next to the usual one (4 warps, 3 stages, blocks of 64), or to another
where the usual one spills registers or does not fit (keys of 256 channels) when it is compiled for Hopper.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple


class Usual(NamedTuple):
    """Where the choice begins."""

    block: int = 64
    warps: int = 4
    stages: int = 3

    def distance(self, config: Any) -> float:
        """Of a configuration, in doublings and stages."""
        sizes = [size for size in config.kwargs.values() if isinstance(size, int) and size > 0]
        blocks = sum(abs(math.log2(size / self.block)) for size in sizes)
        return blocks + abs(math.log2(config.num_warps / self.warps)) + abs(config.num_stages - self.stages)


USUAL = Usual()
OTHERS = {
    "chunk_gated_delta_rule_fwd_kernel_h_blockdim64": Usual(block=32, stages=2),
    "chunk_gated_delta_rule_bwd_kernel_dhu_blockdim64": Usual(block=32, stages=2),
    "chunk_kda_fwd_kernel_inter_solve_fused": Usual(block=32),
}
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
        usual = OTHERS.get(kernel.base_fn.__name__, USUAL)
        kernel.configs = [min(kernel.configs, key=usual.distance)]
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
