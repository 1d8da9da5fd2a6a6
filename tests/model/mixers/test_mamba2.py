"""Mamba-2: transformers' Nemotron-H and Falcon-H1, packed documents, and caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.falcon_h1.configuration_falcon_h1 import FalconH1Config
from transformers.models.falcon_h1.modeling_falcon_h1 import FalconH1Mixer, compute_mup_vector
from transformers.models.nemotron_h.configuration_nemotron_h import NemotronHConfig
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHMamba2Mixer

from ingot.model.mixers.mamba2 import Mamba2, Mamba2Config
from tests.model.mixers.recurrent_cases import (
    SITE,
    WIDTH,
    Get,
    Pairs,
    check_against,
    check_cache,
    check_packed_documents,
    check_reset,
)


def mamba2(**changes: Any) -> Mamba2:
    shape = {"kind": "mamba2", "heads": 6, "head_width": 4, "state": 5, "groups": 3}
    return Mamba2(Mamba2Config.model_validate({**shape, **changes}), SITE)


def same_names(ours: Mamba2) -> Any:
    """Their tensors are ours under other names."""
    names = {
        "input.weight": "in_proj.weight",
        "input.bias": "in_proj.bias",
        "convolution.bias": "conv1d.bias",
        "decay": "A_log",
        "time_step_bias": "dt_bias",
        "skip": "D",
        "norm.gain": "norm.weight",
        "output.weight": "out_proj.weight",
        "output.bias": "out_proj.bias",
    }
    present = [name for name, _ in ours.named_parameters()]

    def pairs(mine: Get, other: Get) -> Pairs:
        found = [(mine(name), other(names[name])) for name in present if name in names]
        return [*found, (mine("convolution.weight"), other("conv1d.weight")[:, 0])]

    return pairs


@pytest.mark.parametrize(
    "heads, groups, bias, convolution_bias, minimum, chunk",
    [(6, 3, False, True, 0.7, 128), (5, 1, True, False, 0.001, 16), (4, 4, False, True, 0.001, 64)],
)
@pytest.mark.parametrize("length", [9, 150])
def test_equals_nemotron(
    heads: int, groups: int, bias: bool, convolution_bias: bool, minimum: float, chunk: int, length: int
) -> None:
    """With a minimum of Δ that many tokens stay below, too."""
    config = NemotronHConfig(
        hidden_size=WIDTH,
        layers_block_type=["linear_attention"],
        mamba_num_heads=heads,
        mamba_head_dim=4,
        ssm_state_size=5,
        n_groups=groups,
        chunk_size=chunk,
        use_bias=bias,
        use_conv_bias=convolution_bias,
        time_step_min=minimum,
        layer_norm_epsilon=SITE.norm.epsilon,
    )
    theirs = NemotronHMamba2Mixer(config, 0)
    ours = mamba2(
        heads=heads,
        groups=groups,
        projection_bias=bias,
        convolution_bias=convolution_bias,
        time_step_min=minimum,
        norm="gate_first",
    )
    check_against(ours, theirs, theirs, same_names(ours), length)


@pytest.mark.parametrize("norm", ["none", "gate_first", "gate_last"])
@pytest.mark.parametrize("heads, groups, limits", [(6, 2, (0.0, float("inf"))), (3, 1, (0.5, 0.9))])
def test_equals_falcon(norm: str, heads: int, groups: int, limits: tuple[float, float]) -> None:
    """With and without the norm, the gate before and after it, limits of Δ, and all multipliers."""
    config = FalconH1Config(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        mamba_d_ssm=heads * 4,
        mamba_n_heads=heads,
        mamba_d_head=4,
        mamba_d_state=5,
        mamba_n_groups=groups,
        mamba_rms_norm=norm != "none",
        mamba_norm_before_gate=norm == "gate_last",
        rms_norm_eps=SITE.norm.epsilon,
        ssm_in_multiplier=1.3,
        ssm_multipliers=[0.5, 1.5, 0.7, 1.2, 2.0],
        time_step_limit=limits,
        mamba_chunk_size=32,
    )
    theirs = FalconH1Mixer(config, 0)
    theirs.mup_vector = compute_mup_vector(config)
    ours = mamba2(
        heads=heads,
        groups=groups,
        norm=norm,
        input_multiplier=1.3,
        section_multipliers=(0.5, 1.5, 0.7, 1.2, 2.0),
        time_step_min=limits[0],
        time_step_max=None if limits[1] == float("inf") else limits[1],
    )
    check_against(ours, theirs, theirs, same_names(ours), 100)


@pytest.mark.parametrize("norm", ["none", "gate_first"])
def test_packed_documents(norm: str) -> None:
    check_packed_documents(mamba2(norm=norm))


def test_cache() -> None:
    """Also with a minimum of Δ: it holds for padding and for single tokens (where transformers forgets it)."""
    check_cache(mamba2(time_step_min=0.7, section_multipliers=(0.5, 1.5, 0.7, 1.2, 2.0)))


def test_first_values() -> None:
    mixer = mamba2(heads=18)
    check_reset(mixer)
    assert torch.equal(mixer.skip, torch.ones(18))
