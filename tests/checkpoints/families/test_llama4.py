"""Llama 4 (text) against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import Llama4TextConfig

from tests.checkpoints.families.harness import LLAMA3, TINY, check

SMALL = TINY | {
    "head_dim": 8,
    "num_hidden_layers": 4,
    "num_local_experts": 5,
    "intermediate_size": 20,
    "intermediate_size_mlp": 44,
    "attention_chunk_size": 8,
    "floor_scale": 4,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"use_qk_norm": False, "interleave_moe_layer_step": 2, "num_key_value_heads": 6, "attention_chunk_size": 40},
        {
            "attn_temperature_tuning": False,
            "num_experts_per_tok": 2,
            "tie_word_embeddings": True,
            "attention_bias": True,
        },
        {"no_rope_layers": [0, 1, 1, 0], "moe_layers": [0, 3], "num_attention_heads": 3, "num_key_value_heads": 1},
        {"layer_types": ["full_attention", "chunked_attention"] * 2, "attention_chunk_size": 1, "num_hidden_layers": 4},
        {"rope_parameters": LLAMA3, "attention_chunk_size": 9, "attn_scale": 0.7, "head_dim": 10},
    ],
)
def test_llama4(changes: dict[str, Any]) -> None:
    check(Llama4TextConfig(**(SMALL | changes)))
