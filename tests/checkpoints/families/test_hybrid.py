"""Families with linear-time mixers against transformers: Qwen3-Next, Kimi Linear, MiniMax-01, Nemotron-H, Falcon-H1."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import FalconH1Config, KimiLinearConfig, MiniMaxConfig, NemotronHConfig, Qwen3NextConfig

from tests.checkpoints.families.harness import GRADIENTS, check

TINY: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
NEXT: dict[str, Any] = {
    "head_dim": 16,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 24,
    "num_experts": 5,
    "num_experts_per_tok": 2,
}


@pytest.mark.parametrize(
    ("changes", "gradients"),
    [
        ({}, GRADIENTS),
        (
            {"mlp_only_layers": [1], "linear_num_value_heads": 6, "norm_topk_prob": False, "tie_word_embeddings": True},
            GRADIENTS,
        ),
        # here the reference's own gradients are 5e-4 from those of a float64 run, and Ingot's 7e-4: both are rounding
        ({"layer_types": ["full_attention", "linear_attention"] * 2, "num_attention_heads": 6}, 5e-4),
    ],
)
def test_qwen3_next(changes: dict[str, Any], gradients: float) -> None:
    check(Qwen3NextConfig(**(TINY | NEXT | changes)), gradients=gradients)


KIMI: dict[str, Any] = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 20,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
    "qk_nope_head_dim": 8,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "linear_head_dim": 6,
    "linear_num_heads": 3,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
}


@pytest.mark.parametrize(
    "changes",
    [{}, {"q_lora_rank": 12, "n_group": 3, "topk_group": 2, "n_shared_experts": 2, "norm_topk_prob": False}],
)
def test_kimi_linear(changes: dict[str, Any]) -> None:
    check(KimiLinearConfig(**(TINY | KIMI | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            "head_dim": 10,
            "full_attn_alpha_factor": 1.7,
            "full_attn_beta_factor": 0.9,
            "linear_attn_alpha_factor": 1.3,
            "linear_attn_beta_factor": 1.1,
            "mlp_alpha_factor": 1.9,
            "mlp_beta_factor": 0.7,
            "block_size": 8,
        },
    ],
)
def test_minimax(changes: dict[str, Any]) -> None:
    check(MiniMaxConfig(**(TINY | {"num_local_experts": 5} | changes)))


NEMOTRON: dict[str, Any] = {
    "head_dim": 12,
    "ssm_state_size": 8,
    "mamba_num_heads": 6,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "n_routed_experts": 4,
    "moe_intermediate_size": 20,
    "moe_shared_expert_intermediate_size": 24,
}
LAYERS = ["linear_attention", "mlp", "full_attention", "linear_attention"]


@pytest.mark.parametrize(
    "changes",
    [
        {"layers_block_type": LAYERS, "mlp_bias": True, "use_bias": True},
        {"layers_block_type": [*LAYERS, "moe"], "use_conv_bias": False, "n_groups": 3},
        {"layers_block_type": ["moe", "linear_attention", "moe"], "moe_latent_size": 16, "n_group": 2, "topk_group": 1},
    ],
)
def test_nemotron_h(changes: dict[str, Any]) -> None:
    tiny = {name: value for name, value in TINY.items() if name != "num_hidden_layers"}
    check(NemotronHConfig(**(tiny | NEMOTRON | changes)))


FALCON = {"mamba_d_ssm": 24, "mamba_n_heads": 3, "mamba_d_state": 8}
MULTIPLIERS = {
    "lm_head_multiplier": 0.8,
    "embedding_multiplier": 1.5,
    "mlp_multipliers": [0.9, 1.2],
    "key_multiplier": 0.7,
    "attention_out_multiplier": 1.1,
    "attention_in_multiplier": 0.9,
    "ssm_multipliers": [0.8, 1.1, 0.9, 1.2, 0.7],
    "ssm_in_multiplier": 1.3,
    "ssm_out_multiplier": 0.6,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"tie_word_embeddings": True},
        {**MULTIPLIERS, "mamba_n_heads": 6, "mamba_n_groups": 2},
        {"mamba_rms_norm": True, "mamba_norm_before_gate": False, "attention_bias": True, "mlp_bias": True},
        {
            "mamba_rms_norm": True,
            "mamba_n_heads": 4,
            "mamba_n_groups": 2,
            "mamba_proj_bias": True,
            "projectors_bias": True,
        },
    ],
)
def test_falcon_h1(changes: dict[str, Any]) -> None:
    check(FalconH1Config(**(TINY | FALCON | changes)))
