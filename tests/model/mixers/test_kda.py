"""Kimi delta attention: transformers' Kimi Linear, packed documents, and caches."""

from __future__ import annotations

import pytest
from transformers.models.kimi_linear.configuration_kimi_linear import KimiLinearConfig
from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearDeltaAttention

from ingot.model.mixers.kda import Kda, KdaConfig
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


def kda(heads: int = 3, head_width: int = 5, taps: int = 4) -> Kda:
    return Kda(KdaConfig(kind="kda", heads=heads, head_width=head_width, convolution=taps), SITE)


@pytest.mark.parametrize("heads, head_width, taps", [(3, 5, 4), (1, 8, 4), (2, 6, 3)])
@pytest.mark.parametrize("length", [9, 150])
def test_equals_transformers(heads: int, head_width: int, taps: int, length: int) -> None:
    config = KimiLinearConfig(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_heads=heads,
        linear_head_dim=head_width,
        linear_conv_kernel_dim=taps,
        rms_norm_eps=SITE.norm.epsilon,
    )
    theirs = KimiLinearDeltaAttention(config, 0)
    ours = kda(heads, head_width, taps)

    def pairs(mine: Get, other: Get) -> Pairs:
        query, key, value = mine("query_key_value.weight").chunk(3)
        return [
            (query, other("q_proj.weight")),
            (key, other("k_proj.weight")),
            (value, other("v_proj.weight")),
            (mine("convolution.weight"), other("conv1d.weight")[:, 0]),
            (mine("beta.weight"), other("b_proj.weight")),
            (mine("decay_down.weight"), other("forget_gate.f_a_proj.weight")),
            (mine("decay_up.weight"), other("forget_gate.f_b_proj.weight")),
            (mine("decay"), other("forget_gate.A_log")[0, 0, :, 0]),
            (mine("time_step_bias"), other("forget_gate.dt_bias")),
            (mine("gate_down.weight"), other("g_a_proj.weight")),
            (mine("gate_up.weight"), other("g_b_proj.weight")),
            (mine("norm.gain"), other("o_norm.weight")),
            (mine("output.weight"), other("o_proj.weight")),
        ]

    check_against(ours, theirs, theirs, pairs, length)


def test_packed_documents() -> None:
    check_packed_documents(kda())


def test_cache() -> None:
    check_cache(kda())


def test_first_values() -> None:
    check_reset(kda(16, 4))
