"""Attention in parallel with Mamba-2: transformers' Falcon-H1, packed documents, and caches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.models.falcon_h1.configuration_falcon_h1 import FalconH1Config
from transformers.models.falcon_h1.modeling_falcon_h1 import (
    FalconH1DecoderLayer,
    FalconH1RotaryEmbedding,
    compute_mup_vector,
)

from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.mamba2 import Mamba2Config
from ingot.model.mixers.parallel import Parallel, ParallelConfig
from ingot.model.positions.config import RopeConfig
from tests.model.mixers.recurrent_cases import (
    SITE,
    WIDTH,
    Get,
    Pairs,
    check_against,
    check_cache,
    check_packed_documents,
)

MULTIPLIERS = (0.5, 1.5, 0.7, 1.2, 2.0)


def parallel(
    heads: int = 3, key_heads: int = 1, mamba_heads: int = 6, groups: int = 2, rope: RopeConfig | None = None
) -> Parallel:
    """Without positions unless asked: angles are float32, and their last bit depends on the shape of the batch."""
    attention = AttentionConfig(heads=heads, key_value_heads=key_heads, head_width=4, rope=rope, key_multiplier=0.6)
    mamba = Mamba2Config(
        kind="mamba2",
        heads=mamba_heads,
        head_width=4,
        state=5,
        groups=groups,
        norm="none",
        input_multiplier=1.3,
        section_multipliers=MULTIPLIERS,
    )
    config = ParallelConfig(
        kind="parallel", attention=attention, mamba=mamba, attention_in=0.8, attention_out=0.9, mamba_out=1.4
    )
    return Parallel(config, SITE)


class MixerOfFalcon(torch.nn.Module):
    """The middle of a Falcon-H1 layer: what lies between its first norm and its residual."""

    def __init__(self, config: FalconH1Config) -> None:
        super().__init__()
        layer = FalconH1DecoderLayer(config, 0)
        self.mamba, self.self_attn = layer.mamba, layer.self_attn
        self.mamba.mup_vector = compute_mup_vector(config)
        self.config, self.rotary = config, FalconH1RotaryEmbedding(config)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        causal = torch.full((1, 1, length, length), -torch.inf).triu(1)
        angles = self.rotary(x, torch.arange(length)[None])
        attended, _ = self.self_attn(
            x * self.config.attention_in_multiplier, attention_mask=causal, position_embeddings=angles
        )
        recurred: Tensor = self.mamba(x)
        return attended * self.config.attention_out_multiplier + recurred * self.config.ssm_out_multiplier


@pytest.mark.parametrize("heads, key_heads, mamba_heads, groups", [(3, 1, 6, 2), (4, 2, 5, 1)])
def test_equals_transformers(heads: int, key_heads: int, mamba_heads: int, groups: int) -> None:
    config = FalconH1Config(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        head_dim=4,
        rope_parameters={"rope_type": "default", "rope_theta": 300.0},
        mamba_d_ssm=mamba_heads * 4,
        mamba_n_heads=mamba_heads,
        mamba_d_head=4,
        mamba_d_state=5,
        mamba_n_groups=groups,
        rms_norm_eps=SITE.norm.epsilon,
        ssm_in_multiplier=1.3,
        ssm_multipliers=list(MULTIPLIERS),
        ssm_out_multiplier=1.4,
        attention_in_multiplier=0.8,
        attention_out_multiplier=0.9,
        key_multiplier=0.6,
    )
    config._attn_implementation = "eager"
    theirs = MixerOfFalcon(config)
    ours = parallel(heads, key_heads, mamba_heads, groups, RopeConfig(base=300.0))
    names = {
        "input.weight": "in_proj.weight",
        "convolution.bias": "conv1d.bias",
        "decay": "A_log",
        "time_step_bias": "dt_bias",
        "skip": "D",
        "output.weight": "out_proj.weight",
    }

    def pairs(mine: Get, other: Get) -> Pairs:
        sizes = (heads * 4, key_heads * 4, key_heads * 4)
        parts = mine("attention.query_key_value.weight").split(sizes)
        return [
            *((part, other(f"self_attn.{name}_proj.weight")) for part, name in zip(parts, "qkv", strict=True)),
            (mine("attention.output.weight"), other("self_attn.o_proj.weight")),
            *((mine(f"mamba.{name}"), other(f"mamba.{their}")) for name, their in names.items()),
            (mine("mamba.convolution.weight"), other("mamba.conv1d.weight")[:, 0]),
        ]

    check_against(ours, theirs, theirs, pairs, 90)


def test_packed_documents() -> None:
    check_packed_documents(parallel())


def test_cache() -> None:
    check_cache(parallel())
