"""Tensor names of the linear-time mixers: gated DeltaNet, Kimi delta attention, lightning attention, Mamba-2."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ingot.checkpoints.families.family import Layout, TensorMap, View, ViewPair, maps_to, rows
from ingot.model.mixers.gated_delta import GatedDeltaConfig
from ingot.model.mixers.kda import KdaConfig
from ingot.model.mixers.lightning import LightningConfig, slopes
from ingot.model.mixers.mamba2 import Mamba2Config
from ingot.model.mixers.mixer import Site

LIGHTNING_BLOCK = 256  # of the decays that transformers stores in its checkpoints; any size computes the same

CONVOLUTION: View = lambda weight: weight[:, None]  # noqa: E731  theirs is a Conv1d: [channels, 1, taps]


def grouped(start: int, end: int, groups: int) -> View:
    """Some rows as [groups, rows of a group, …]."""
    return lambda tensor: tensor[start:end].unflatten(0, (groups, -1))


def within(groups: int, start: int, end: int) -> View:
    """Rows start … end of each of the groups that all rows are made of."""
    return lambda tensor: tensor.unflatten(0, (groups, -1))[:, start:end]


def gated_delta_layout(ours: str, theirs: str, mixer: GatedDeltaConfig, width: int) -> Layout:
    """Qwen3-Next: two input matrices grouped by key head, [q | k | v·r | z·r] and [b·r | a·r]."""
    heads, ratio = mixer.key_heads, mixer.value_heads // mixer.key_heads
    sizes = [mixer.key_width, mixer.key_width, ratio * mixer.value_width, ratio * mixer.value_width]
    return {
        f"{theirs}in_proj_qkvz.weight": interleave(f"{ours}input.weight", heads, sizes, width),
        f"{theirs}in_proj_ba.weight": interleave(f"{ours}rates.weight", heads, [ratio, ratio], width),
        f"{theirs}conv1d.weight": maps_to(f"{ours}convolution.weight", CONVOLUTION),
        f"{theirs}A_log": maps_to(f"{ours}decay"),
        f"{theirs}dt_bias": maps_to(f"{ours}time_step_bias"),
        f"{theirs}norm.weight": maps_to(f"{ours}norm.gain"),
        f"{theirs}out_proj.weight": maps_to(f"{ours}output.weight"),
    }


def interleave(parameter: str, groups: int, sizes: list[int], width: int) -> TensorMap:
    """Ours lists part after part, each for all groups; theirs lists group after group, each with all parts."""
    pairs, inside = [], 0
    for size in sizes:
        ours = grouped(groups * inside, groups * (inside + size), groups)
        pairs.append(ViewPair(parameter, ours, within(groups, inside, inside + size)))
        inside += size
    return TensorMap(tuple(pairs), (groups * inside, width))


def kda_layout(ours: str, theirs: str, mixer: KdaConfig) -> Layout:
    """Kimi Linear: projections and convolutions of queries, keys and values by themselves."""
    size = mixer.heads * mixer.head_width
    layout: Layout = {}
    for index, name in enumerate("qkv"):
        cut = rows(index * size, (index + 1) * size)
        layout[f"{theirs}{name}_proj.weight"] = maps_to(f"{ours}query_key_value.weight", cut)
        layout[f"{theirs}{name}_conv1d.weight"] = maps_to(f"{ours}convolution.weight", _conv_rows(index * size, size))
    names = {
        "b_proj": "beta",
        "f_a_proj": "decay_down",
        "f_b_proj": "decay_up",
        "g_a_proj": "gate_down",
        "g_b_proj": "gate_up",
        "o_proj": "output",
    }
    layout |= {f"{theirs}{name}.weight": maps_to(f"{ours}{part}.weight") for name, part in names.items()}
    return layout | {
        f"{theirs}A_log": maps_to(f"{ours}decay", lambda decay: decay[None, None, :, None]),
        f"{theirs}dt_bias": maps_to(f"{ours}time_step_bias"),
        f"{theirs}o_norm.weight": maps_to(f"{ours}norm.gain"),
    }


def _conv_rows(start: int, size: int) -> View:
    return lambda weight: weight[start : start + size, None]


def lightning_layout(ours: str, theirs: str, mixer: LightningConfig, site: Site) -> Layout:
    """MiniMax-01: [q | k | v] of each head together, and the decays that follow from the layer's number, in blocks."""
    names = {"norm.weight": "norm.gain", "output_gate.weight": "gate.weight", "out_proj.weight": "output.weight"}
    layout = {f"{theirs}{name}": maps_to(f"{ours}{part}") for name, part in names.items()}
    sizes = [mixer.head_width] * 3
    layout[f"{theirs}qkv_proj.weight"] = interleave(f"{ours}query_key_value.weight", mixer.heads, sizes, site.width)
    heads, block = mixer.heads, LIGHTNING_BLOCK
    rate_H11 = slopes(heads, site.layer, site.depth)[:, None, None]
    step_C1 = torch.arange(block)[:, None]
    distance_CC = step_C1 - step_C1.T
    decays: dict[str, tuple[tuple[int, ...], Callable[[], Tensor]]] = {
        "slope_rate": ((heads, 1, 1), lambda: rate_H11),
        "query_decay": ((heads, block, 1), lambda: torch.exp(-rate_H11 * (step_C1 + 1))),
        "key_decay": ((heads, block, 1), lambda: torch.exp(-rate_H11 * (block - 1 - step_C1))),
        "diagonal_decay": (
            (1, heads, block, block),
            lambda: torch.exp(-rate_H11 * distance_CC.clamp_min(0)).tril()[None],
        ),
    }
    return layout | {f"{theirs}{name}": TensorMap((), size, computed=make) for name, (size, make) in decays.items()}


def mamba_layout(ours: str, theirs: str, mixer: Mamba2Config) -> Layout:
    """Nemotron-H and Falcon-H1."""
    layout = {
        f"{theirs}in_proj.weight": maps_to(f"{ours}input.weight"),
        f"{theirs}out_proj.weight": maps_to(f"{ours}output.weight"),
        f"{theirs}conv1d.weight": maps_to(f"{ours}convolution.weight", CONVOLUTION),
        f"{theirs}A_log": maps_to(f"{ours}decay"),
        f"{theirs}dt_bias": maps_to(f"{ours}time_step_bias"),
        f"{theirs}D": maps_to(f"{ours}skip"),
    }
    if mixer.convolution_bias:
        layout[f"{theirs}conv1d.bias"] = maps_to(f"{ours}convolution.bias")
    if mixer.projection_bias:
        layout[f"{theirs}in_proj.bias"] = maps_to(f"{ours}input.bias")
        layout[f"{theirs}out_proj.bias"] = maps_to(f"{ours}output.bias")
    if mixer.norm != "none":
        layout[f"{theirs}norm.weight"] = maps_to(f"{ours}norm.gain")
    return layout
