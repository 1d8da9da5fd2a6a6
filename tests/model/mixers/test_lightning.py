"""Lightning attention: transformers' MiniMax, packed documents, and caches."""

from __future__ import annotations

import pytest
import torch
from transformers.models.minimax.configuration_minimax import MiniMaxConfig
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.lightning import Lightning, LightningConfig
from ingot.model.mixers.mixer import Site
from tests.model.mixers.recurrent_cases import (
    SITE,
    WIDTH,
    Get,
    Pairs,
    check_against,
    check_cache,
    check_packed_documents,
)


def lightning(heads: int = 3, head_width: int = 5, site: Site = SITE, activation: str = "silu") -> Lightning:
    config = LightningConfig.model_validate(
        {"kind": "lightning", "heads": heads, "head_width": head_width, "activation": activation}
    )
    return Lightning(config, site)


@pytest.mark.parametrize(
    "heads, layer, depth, block, activation",
    [(3, 1, 4, 16, "silu"), (5, 0, 2, 256, "silu"), (4, 3, 4, 32, "relu"), (1, 0, 1, 64, "gelu_pytorch_tanh")],
)
def test_equals_transformers(heads: int, layer: int, depth: int, block: int, activation: str) -> None:
    config = MiniMaxConfig(
        hidden_size=WIDTH,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=6,
        num_hidden_layers=depth,
        block_size=block,
        layer_types=["linear_attention"] * depth,
        hidden_act=activation,
    )
    theirs = MiniMaxLightningAttention(config, layer)
    site = Site(WIDTH, layer, depth, SITE.norm)
    ours = lightning(heads, 6, site, activation.replace("gelu_pytorch_tanh", "gelu_tanh"))

    def pairs(mine: Get, other: Get) -> Pairs:
        per_head = mine("query_key_value.weight").view(3, heads, 6, WIDTH).transpose(0, 1)
        return [
            (per_head, other("qkv_proj.weight").view(heads, 3, 6, WIDTH)),
            (mine("gate.weight"), other("output_gate.weight")),
            (mine("norm.gain"), other("norm.weight")),
            (mine("output.weight"), other("out_proj.weight")),
        ]

    check_against(ours, theirs, lambda x: theirs(x, None, None)[0], pairs, 150)


def test_packed_documents() -> None:
    check_packed_documents(lightning())


def test_cache() -> None:
    check_cache(lightning())


def test_the_state_is_kept_in_float32() -> None:
    cache = lightning().make_cache(CacheShape(slots=2, length=8), torch.bfloat16, torch.device("cpu"))
    assert {name: state.dtype for name, state in cache.states.items()} == {"recurrent": torch.float32}
