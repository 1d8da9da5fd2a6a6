"""config.json in all its spellings: what is read does not depend on the version that wrote it."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from ingot.checkpoints.families.table import read_config
from ingot.model.config import ModelConfig
from ingot.workspace.errors import ArtifactError
from tests.checkpoints.families.harness import LLAMA3
from tests.checkpoints.families.test_configs import CONFIGS, outcome, same_model, written

SHAPE = {
    "vocab_size": 67,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0",
    "use_cache": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.02,
}
FACTORS = {"short_factor": [1.0, 1.1, 1.2], "long_factor": [2.0, 3.0, 4.0]}
V2: dict[str, Any] = {
    "rope_theta": 10000,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 4,
        "mscale": 0.707,
        "mscale_all_dim": 0.9,
        "original_max_position_embeddings": 16,
        "type": "yarn",
    },
    "num_key_value_heads": 6,
    "aux_loss_alpha": 0.001,
    "seq_aux": True,
    "ep_size": 1,
    "pretraining_tp": 1,
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 6,
    "v_head_dim": 10,
    "moe_intermediate_size": 20,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
}
V3 = V2 | {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True, "rms_norm_eps": 1e-6}
OLD: dict[str, dict[str, Any]] = {
    "llama": {
        "rope_theta": 500.0,
        "rope_scaling": {name: value for name, value in LLAMA3.items() if name != "rope_theta"},
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "attention_bias": False,
        "is_llama_config": True,
        "rope_interleaved": False,
    },
    "qwen2": {"rope_theta": 1e6, "sliding_window": 40, "use_sliding_window": False, "max_window_layers": 21},
    "qwen3": {
        "rope_theta": 1e6,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        "head_dim": 10,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_window_layers": 6,
    },
    "smollm3": {"rope_theta": 5e6, "rope_scaling": None, "no_rope_layer_interval": 4, "pretraining_tp": 2},
    "olmo2": {"rope_theta": 5e5, "rope_scaling": None, "rms_norm_eps": 1e-6, "pad_token_id": 0},
    "olmo3": {
        "rope_theta": 5e5,
        "rope_scaling": {
            "attention_factor": 1.2079441541679836,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 8.0,
            "original_max_position_embeddings": 16,
            "rope_type": "yarn",
        },
        "sliding_window": 8,
        "pad_token_id": 0,
    },
    "gemma2": {
        "rope_theta": 10000.0,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "cache_implementation": "hybrid",
        "head_dim": 10,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 10,
        "sliding_window": 8,
    },
    "gemma3_text": {
        "rope_theta": 1000000,
        "rope_local_base_freq": 10000,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "cache_implementation": "hybrid",
        "head_dim": 10,
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 10,
        "sliding_window": 8,
        "sliding_window_pattern": 3,
    },
    "phi3": {
        "rope_theta": 10000.0,
        "rope_scaling": {**FACTORS, "type": "longrope"},
        "original_max_position_embeddings": 16,
        "partial_rotary_factor": 0.75,
        "attention_bias": False,
        "full_attn_mod": 1,
        "interpolate_factor": 1,
        "lm_head_bias": False,
        "mlp_bias": False,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "sliding_window": 262144,
        "pad_token_id": 0,
    },
    "qwen2_moe": {
        "rope_theta": 1000000.0,
        "sliding_window": 40,
        "use_sliding_window": False,
        "max_window_layers": 21,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "shared_expert_intermediate_size": 28,
        "decoder_sparse_step": 1,
        "norm_topk_prob": False,
        "router_aux_loss_coef": 0.001,
    },
    "qwen3_moe": {
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
        "max_window_layers": 48,
        "head_dim": 10,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    },
    "mistral": {"rope_theta": 1000000.0, "sliding_window": 32, "head_dim": 8},
    "mixtral": {"rope_theta": 1000000.0, "sliding_window": None, "num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {"rope_theta": 10000.0, "clip_qkv": None, "num_experts": 8, "num_experts_per_tok": 3, "pad_token_id": 1},
    "glm4_moe": {
        "rope_theta": 1000000,
        "rope_scaling": None,
        "partial_rotary_factor": 0.5,
        "head_dim": 12,
        "attention_bias": True,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 1,
        "use_qk_norm": True,
    },
    "afmoe": {
        "rope_theta": 10000,
        "rope_scaling": None,
        "head_dim": 10,
        "load_balance_coeff": 0.001,
        "n_group": 1,
        "topk_group": 1,
        "num_expert_groups": 1,
        "num_limited_groups": 1,
        "route_norm": True,
        "route_scale": 2.826,
        "score_func": "sigmoid",
        "use_grouped_mm": True,
        "mup_enabled": True,
        "sliding_window": 8,
    },
    "minimax_m2": {
        "rope_theta": 5000000,
        "rotary_dim": 4,
        "head_dim": 8,
        "attn_type_list": [1] * 6,
        "layernorm_full_attention_beta": 1.0,
        "layernorm_linear_attention_beta": 1.0,
        "layernorm_mlp_beta": 1.0,
        "mlp_intermediate_size": 8192,
        "mtp_transformer_layers": 1,
        "num_mtp_modules": 3,
        "use_mtp": True,
        "num_local_experts": 8,
        "qk_norm_type": "per_layer",
        "scoring_func": "sigmoid",
        "shared_intermediate_size": 0,
        "shared_moe_mode": "sigmoid",
        "sliding_window": None,
        "use_qk_norm": True,
        "use_routing_bias": True,
    },
    "gpt_oss": {
        "rope_theta": 150000,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "experts_per_token": 4,
        "initial_context_length": 4096,
        "head_dim": 10,
        "num_local_experts": 8,
        "swiglu_limit": 7.0,
    },
    "llama4_text": {
        "rope_theta": 500000.0,
        "rope_scaling": {name: value for name, value in LLAMA3.items() if name != "rope_theta"},
        "head_dim": 10,
        "for_llm_compressor": False,
        "interleave_moe_layer_step": 2,
        "num_local_experts": 8,
        "no_rope_layers": [],
    },
    "deepseek_v2": V2 | {"topk_method": "group_limited_greedy", "scoring_func": "softmax", "norm_topk_prob": False},
    "deepseek_v3": V3 | {"num_nextn_predict_layers": 1},
    "deepseek_v32": V3 | {"index_n_heads": 16, "index_head_dim": 12, "index_topk": 9},
    "glm_moe_dsa": V3
    | {
        "index_n_heads": 16,
        "index_head_dim": 12,
        "index_topk": 9,
        "indexer_rope_interleave": True,
        "rope_interleave": True,
        "head_dim": 64,
    },
    "qwen3_next": {
        "rope_theta": 10000000,
        "rope_scaling": None,
        "partial_rotary_factor": 0.25,
        "full_attention_interval": 3,
        "head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 6,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 6,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
        "num_experts": 16,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 20,
        "shared_expert_intermediate_size": 20,
        "attention_bias": False,
    },
    "minimax": {"rope_theta": 10000000, "head_dim": 10, "num_local_experts": 4, "sliding_window": None},
    "falcon_h1": {
        "rope_theta": 100000000000.0,
        "rope_scaling": None,
        "mamba_d_ssm": 24,
        "mamba_n_heads": 6,
        "mamba_d_head": 4,
        "mamba_d_state": 8,
        "mamba_chunk_size": 128,
        "mamba_expand": 2,
        "mamba_use_mlp": True,
        "mlp_expansion_factor": 8,
        "attn_layer_indices": None,
        "num_logits_to_keep": 1,
        "projectors_bias": False,
        "time_step_limit": [0.0, 10.0],
        "ssm_multipliers": [0.8, 1.1, 0.9, 1.2, 0.7],
        "mlp_multipliers": [0.9, 1.2],
    },
}
"""Keys of published config.json files from before transformers 5, with small numbers."""


@pytest.mark.parametrize("name", OLD)
def test_old_spellings_are_read_as_the_same_model_as_new_ones(name: str) -> None:
    old = {"model_type": name, **SHAPE, **OLD[name]}
    new = written(type(CONFIGS[name])(**old))
    assert "rope_theta" not in new and "rope_scaling" not in new
    added = {key for key in new if key not in old}
    assert "rope_parameters" in added
    same_model(old, new)


def as_type(values: dict[str, Any], model_type: str) -> dict[str, Any]:
    return values | {"model_type": model_type}


def test_kimi_k2_is_deepseek_v3() -> None:
    old = SHAPE | V3
    assert outcome(as_type(old, "kimi_k2")) == outcome(as_type(old, "deepseek_v3"))
    assert isinstance(outcome(as_type(old, "kimi_k2")), ModelConfig)


@pytest.mark.parametrize("name", ["minimax_text_01", "minimax_m1"])
def test_released_minimax_files_have_names_of_their_own(name: str) -> None:
    """transformers knows none of these keys: the two spellings of each are written out by hand."""
    shared = SHAPE | {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5}
    released = shared | {
        "attn_type_list": [0, 0, 1, 0, 0, 1],
        "layernorm_full_attention_alpha": 3.5,
        "layernorm_full_attention_beta": 1.1,
        "layernorm_linear_attention_alpha": 3.25,
        "layernorm_linear_attention_beta": 1.2,
        "layernorm_mlp_alpha": 2.5,
        "layernorm_mlp_beta": 1.3,
        "postnorm": True,
        "rope_theta": 10000000,
        "rotary_dim": 8,
        "shared_intermediate_size": 0,
        "shared_moe_mode": "sigmoid",
        "sliding_window": None,
        "output_router_logits": False,
        "router_jitter_noise": 0.0,
    }
    new = shared | {
        "layer_types": (["linear_attention"] * 2 + ["full_attention"]) * 2,
        "full_attn_alpha_factor": 3.5,
        "full_attn_beta_factor": 1.1,
        "linear_attn_alpha_factor": 3.25,
        "linear_attn_beta_factor": 1.2,
        "mlp_alpha_factor": 2.5,
        "mlp_beta_factor": 1.3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5},
    }
    model = outcome(as_type(released, name))
    assert isinstance(model, ModelConfig)
    assert model == outcome(as_type(new, "minimax"))
    full, linear = (block for _, block in sorted(model.blocks.items()))
    assert (full.mixer_scales, linear.mixer_scales, full.feed_forward_scales) == ((3.5, 1.1), (3.25, 1.2), (2.5, 1.3))


def test_nemotron_layers_as_letters() -> None:
    old = as_type(SHAPE, "nemotron_h") | {
        "hybrid_override_pattern": "M-M*E-",
        "layer_norm_epsilon": 1e-5,
        "head_dim": 8,
        "attention_bias": False,
        "chunk_size": 128,
        "conv_kernel": 4,
        "expand": 2,
        "mamba_head_dim": 8,
        "mamba_num_heads": 6,
        "mamba_proj_bias": False,
        "n_groups": 2,
        "ssm_state_size": 8,
        "mlp_bias": False,
        "mlp_hidden_act": "relu2",
        "moe_intermediate_size": 20,
        "moe_shared_expert_intermediate_size": 20,
        "rescale_prenorm_residual": True,
        "sliding_window": None,
        "time_step_limit": [0.0, 10.0],
        "use_bias": False,
        "use_conv_bias": True,
    }
    new = written(transformers.NemotronHConfig(**old))
    assert "hybrid_override_pattern" not in new
    same_model(old, new)
    kinds = ["mamba", "mlp", "mamba", "attention", "moe", "mlp"]
    listed = old | {"layers_block_type": kinds}
    del listed["hybrid_override_pattern"]
    same_model(listed, new)


def test_kimi_linear_counts_its_layers_from_one() -> None:
    old = as_type(SHAPE, "kimi_linear") | {
        "linear_attn_config": {
            "full_attn_layers": [3, 6],
            "kda_layers": [1, 2, 4, 5],
            "head_dim": 6,
            "num_heads": 3,
            "short_conv_kernel_size": 3,
        },
        "num_key_value_heads": 6,
        "head_dim": 8,
        "first_k_dense_replace": 2,
        "kv_lora_rank": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "mla_use_nope": True,
        "model_max_length": 64,
        "moe_intermediate_size": 20,
        "moe_layer_freq": 1,
        "moe_renormalize": False,
        "moe_router_activation_func": "sigmoid",
        "num_expert_group": 2,
        "topk_group": 1,
        "num_experts": 8,
        "num_experts_per_token": 3,
        "num_shared_experts": 2,
        "num_nextn_predict_layers": 0,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "routed_scaling_factor": 2.446,
        "use_grouped_topk": True,
    }
    del old["max_position_embeddings"]
    new = written(transformers.KimiLinearConfig(**old))
    new.pop("linear_attn_config", None)
    assert new["layer_types"] == (["linear_attention"] * 2 + ["full_attention"]) * 2
    same_model(old, new)


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3_text", "olmoe"])
def test_what_transformers_does_not_build_is_neither_read_nor_written(name: str) -> None:
    values = written(CONFIGS[name]) | {"num_attention_heads": 7, "num_key_value_heads": 7, "head_dim": 10}
    with pytest.raises(ArtifactError, match=r"hidden_size|stream"):
        read_config(values, "config.json")
