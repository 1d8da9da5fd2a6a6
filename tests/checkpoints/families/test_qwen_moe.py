"""Qwen 2 MoE and Qwen 3 MoE against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import Qwen2MoeConfig, Qwen3MoeConfig

from tests.checkpoints.families.harness import TINY, YARN, check

SMALL = TINY | {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_topk_prob": True, "qkv_bias": False, "num_attention_heads": 3, "num_key_value_heads": 1},
        {"mlp_only_layers": [0], "use_sliding_window": True, "sliding_window": 5, "tie_word_embeddings": True},
        {"decoder_sparse_step": 2, "num_hidden_layers": 4, "num_experts_per_tok": 5, "num_experts": 8},
    ],
)
def test_qwen2_moe(changes: dict[str, Any]) -> None:
    check(Qwen2MoeConfig(**(SMALL | {"shared_expert_intermediate_size": 28} | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 10},
        {"norm_topk_prob": True, "attention_bias": True, "num_key_value_heads": 6, "rope_parameters": YARN},
        {"mlp_only_layers": [1], "use_sliding_window": True, "sliding_window": 5, "tie_word_embeddings": True},
        {"decoder_sparse_step": 3, "num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 40},
    ],
)
def test_qwen3_moe(changes: dict[str, Any]) -> None:
    check(Qwen3MoeConfig(**(SMALL | changes)))
