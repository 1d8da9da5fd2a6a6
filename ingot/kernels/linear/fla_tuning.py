"""Gives each of flash-linear-attention's kernels one configuration: a run begins at once, and no clock decides how it adds up.

Its kernels choose block sizes, warps and stages at their first call, by compiling and timing every configuration: up to 36 of a
kernel, 39 in all for gated DeltaNet, 138 for KDA, one after the other (2 s each) and again for each shape of heads. On an H200
KDA was not through after three minutes. And the clock decides: another run, or a batch of another shape, may add up in
another order. Here each has the configuration that its own tuner found there (`benchmarks/mixers.py --tuned`, 16 heads of 128
channels), or the one next to the usual (4 warps, 3 stages, blocks of 64). Keys of more than 128 channels have smaller blocks,
because the others do not fit when they are compiled for Hopper.

The loop over states has as many programs as there are sequences, heads and blocks of values. In four stages each takes 181 KB of
shared memory, so one runs on a multiprocessor. Where there are more programs than multiprocessors they would run in two waves:
there two stages are taken (99 KB, two at a time). The stages change when memory is read, not what is added up.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor


class Settings(NamedTuple):
    """Of a kernel; the choice is the configuration next to them."""

    block: int | dict[str, int] = 64  # of every size that a kernel has, or by their names
    warps: int = 4
    stages: int = 3

    def distance(self, config: Any) -> float:
        """Of a configuration, in doublings and stages."""
        blocks = 0.0
        for name, size in config.kwargs.items():
            if isinstance(size, int) and size > 0:
                blocks += abs(math.log2(size / (self.block if isinstance(self.block, int) else self.block[name])))
        return blocks + abs(math.log2(config.num_warps / self.warps)) + abs(config.num_stages - self.stages)


USUAL = Settings()
STATES = "chunk_gated_delta_rule_fwd_kernel_h_blockdim64"
STATES_BACK = "chunk_gated_delta_rule_bwd_kernel_dhu_blockdim64"
Rule = Literal["head", "channel"]  # what has a decay of its own
FOUND: dict[Rule, dict[str, Settings]] = {
    "head": {
        STATES: Settings(64, 4, 4),
        STATES_BACK: Settings(32, 4, 2),
        "chunk_gated_delta_rule_fwd_kkt_solve_kernel": Settings(64, 1, 3),
        "chunk_bwd_kernel_dv_local": Settings(64, 2, 2),
    },
    "channel": {
        STATES: Settings(64, 4, 2),
        STATES_BACK: Settings(32, 4, 3),
        "chunk_gla_fwd_kernel_o": Settings({"BK": 64, "BV": 128}, 4, 2),
        "chunk_kda_fwd_kernel_inter_solve_fused": Settings(32, 1, 3),
        "chunk_kda_fwd_kernel_intra_token_parallel": Settings(2, 1, 3),
        "chunk_kda_bwd_kernel_intra": Settings(64, 2, 2),
        "chunk_kda_bwd_kernel_wy_dqkg_fused": Settings(64, 4, 2),
        "chunk_kda_bwd_kernel_dAv": Settings(64, 4, 2),
        "chunk_local_cumsum_vector_kernel": Settings(64, 2, 3),
    },
}
CROWDED = {STATES: Settings(64, 4, 2)}
WIDE_KEYS = {STATES: Settings(32, 4, 2), STATES_BACK: Settings(32, 4, 2), "chunk_gla_fwd_kernel_o": USUAL}
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


def fix_configurations(rule: Rule, key_width: int, *, crowded: bool = False) -> None:
    """For the calls that follow, until the next call of this. `crowded`: the loop over states has more programs than fit."""
    for kernel, configs in _choices(rule, key_width > 128, crowded):
        kernel.configs = configs


def is_crowded(sequences: int, value_THV: Tensor) -> bool:
    """Whether the loop over states, in blocks of 64 values, has more programs than the device has multiprocessors."""
    programs = sequences * value_THV.shape[1] * -(-value_THV.shape[2] // 64)
    return programs > (_multiprocessors(value_THV.device) if value_THV.is_cuda else programs)


@cache
def _multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def _choices(rule: Rule, wide: bool, crowded: bool) -> list[tuple[Any, list[Any]]]:
    """Each kernel with its configuration, in a list as its tuner wants it."""
    settings = {**FOUND[rule], **(CROWDED if crowded else {}), **(WIDE_KEYS if wide else {})}
    given = all_configurations()
    return [
        (kernel, [min(given[name], key=settings.get(kernel.base_fn.__name__, USUAL).distance)])
        for name, kernel in tuned_kernels(MODULES).items()
    ]


@cache
def all_configurations() -> dict[str, list[Any]]:
    """What each kernel has to choose from, by its name. Asked for the first time before anything is fixed."""
    return {name: kernel.configs for name, kernel in tuned_kernels(MODULES).items()}


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
