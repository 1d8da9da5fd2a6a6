"""Gated DeltaNet: transformers' Qwen3-Next, packed documents, and caches."""

from __future__ import annotations

import pytest
import torch
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.gated_delta import GatedDelta, GatedDeltaConfig
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


def gated_delta(keys: int = 3, values: int = 6, key_width: int = 5, value_width: int = 4, taps: int = 4) -> GatedDelta:
    config = GatedDeltaConfig(
        kind="gated_delta",
        key_heads=keys,
        value_heads=values,
        key_width=key_width,
        value_width=value_width,
        convolution=taps,
    )
    return GatedDelta(config, SITE)


@pytest.mark.parametrize(
    "keys, values, key_width, value_width, taps", [(3, 9, 5, 4, 4), (2, 2, 8, 8, 3), (1, 5, 4, 6, 4)]
)
@pytest.mark.parametrize("length", [9, 150])
def test_equals_transformers(keys: int, values: int, key_width: int, value_width: int, taps: int, length: int) -> None:
    config = Qwen3NextConfig(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        linear_num_key_heads=keys,
        linear_num_value_heads=values,
        linear_key_head_dim=key_width,
        linear_value_head_dim=value_width,
        linear_conv_kernel_dim=taps,
        rms_norm_eps=SITE.norm.epsilon,
    )
    theirs = Qwen3NextGatedDeltaNet(config, 0)
    ours = gated_delta(keys, values, key_width, value_width, taps)

    def pairs(mine: Get, other: Get) -> Pairs:
        """Their rows are grouped by key head: [q | k | values | gates] and [β | a] of each."""
        share = values // keys * value_width
        sections = (keys * key_width, keys * key_width, values * value_width, values * value_width)
        grouped = (
            other("in_proj_qkvz.weight").unflatten(0, (keys, -1)).split((key_width, key_width, share, share), dim=1)
        )
        plain = [part.unflatten(0, (keys, -1)) for part in mine("input.weight").split(sections)]
        rates = mine("rates.weight").view(2, keys, -1, WIDTH).transpose(0, 1)
        return [
            *zip(plain, grouped, strict=True),
            (rates, other("in_proj_ba.weight").view(keys, 2, -1, WIDTH)),
            (mine("convolution.weight"), other("conv1d.weight")[:, 0]),
            (mine("decay"), other("A_log")),
            (mine("time_step_bias"), other("dt_bias")),
            (mine("norm.gain"), other("norm.weight")),
            (mine("output.weight"), other("out_proj.weight")),
        ]

    check_against(ours, theirs, theirs, pairs, length)


def test_packed_documents() -> None:
    check_packed_documents(gated_delta())


def test_cache() -> None:
    check_cache(gated_delta())


def test_first_values() -> None:
    check_reset(gated_delta(8, 16))


def test_the_dtypes_of_its_states() -> None:
    cache = gated_delta().make_cache(CacheShape(slots=2, length=8), torch.bfloat16, torch.device("cpu"))
    assert {name: state.dtype for name, state in cache.states.items()} == {
        "recurrent": torch.float32,
        "convolution": torch.bfloat16,
    }
