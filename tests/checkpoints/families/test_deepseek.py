"""DeepSeek-V2, V3, V3.2 and GLM-5 against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import DeepseekV2Config, DeepseekV3Config, DeepseekV32Config, GlmMoeDsaConfig

from tests.checkpoints.families.harness import check

TINY: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 48,
    "intermediate_size": 56,
    "moe_intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "max_position_embeddings": 64,
    "kv_lora_rank": 16,
    "q_lora_rank": 14,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 8,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "bos_token_id": None,
    "eos_token_id": None,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
}
GROUPS = {"n_group": 4, "topk_group": 2}


@pytest.mark.parametrize(
    "changes",
    [
        {"first_k_dense_replace": 0},
        {"q_lora_rank": None, "n_shared_experts": 1, "rope_parameters": YARN},
        {**GROUPS, "topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0, "attention_bias": True},
    ],
)
def test_v2(changes: dict[str, Any]) -> None:
    check(DeepseekV2Config(**(TINY | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"n_group": 1, "topk_group": 1},
        {**GROUPS, "rope_parameters": YARN, "routed_scaling_factor": 2.827},
        {**GROUPS, "q_lora_rank": None, "rope_interleave": False, "attention_bias": True, "tie_word_embeddings": True},
        {"n_group": 2, "topk_group": 1, "norm_topk_prob": False, "n_shared_experts": 2, "num_attention_heads": 4},
    ],
)
def test_v3(changes: dict[str, Any]) -> None:
    check(DeepseekV3Config(**(TINY | changes)))


SPARSE = {"index_n_heads": 16, "index_head_dim": 12, "index_topk": 9}


@pytest.mark.parametrize(
    "changes",
    [
        {"n_group": 1, "topk_group": 1},
        {**GROUPS, "rope_parameters": YARN, "index_topk": 64},
        {**GROUPS, "mlp_layer_types": ["sparse", "dense", "sparse"], "attention_bias": True},
    ],
)
def test_v32(changes: dict[str, Any]) -> None:
    check(DeepseekV32Config(**(TINY | SPARSE | changes)))


@pytest.mark.parametrize(
    "changes",
    [{}, {"indexer_types": ["full", "shared", "full"]}, {"rope_parameters": YARN, "index_topk": 40, **GROUPS}],
)
def test_glm_dsa(changes: dict[str, Any]) -> None:
    check(GlmMoeDsaConfig(**(TINY | SPARSE | {"n_group": 1, "topk_group": 1} | changes)))
