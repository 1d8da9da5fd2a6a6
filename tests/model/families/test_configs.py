"""config.json in all its spellings: what is read does not depend on who wrote it, and nothing in it is overlooked."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import transformers
from transformers import PretrainedConfig

from ingot.model.families.table import read_config, write_config
from ingot.model.families.weights import check_names
from ingot.workspace.errors import ArtifactError
from tests.model.families.harness import LINEAR, LLAMA3, TINY, YARN

logging.getLogger("transformers").setLevel(logging.ERROR)

# No model of these sizes is built; they are such that every default of the classes fits to the other numbers.
WIDE = TINY | {"hidden_size": 3840, "num_attention_heads": 96}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
CONFIGS: dict[str, PretrainedConfig] = {
    config.model_type: config
    for config in (
        transformers.LlamaConfig(**WIDE, rope_parameters=LLAMA3, attention_bias=True),
        transformers.Qwen2Config(**WIDE, use_sliding_window=True, sliding_window=7, layer_types=KINDS),
        transformers.Qwen3Config(**WIDE, rope_parameters=YARN, head_dim=10, attention_bias=True),
        transformers.SmolLM3Config(**WIDE, no_rope_layers=[1, 0, 1], tie_word_embeddings=False),
        transformers.Olmo2Config(**WIDE, rope_parameters=LINEAR, attention_bias=True),
        transformers.Olmo3Config(**WIDE, sliding_window=7, layer_types=KINDS),
        transformers.Gemma2Config(**WIDE, head_dim=10, sliding_window=7, query_pre_attn_scalar=24),
        transformers.Gemma3TextConfig(**WIDE, head_dim=10, sliding_window=7, final_logit_softcapping=5.0),
        transformers.Phi3Config(**WIDE, partial_rotary_factor=0.5, sliding_window=7),
        transformers.Qwen2MoeConfig(**WIDE, **MOE, shared_expert_intermediate_size=28, mlp_only_layers=[1]),
        transformers.Qwen3MoeConfig(**WIDE, **MOE, norm_topk_prob=True, decoder_sparse_step=2),
        transformers.OlmoeConfig(**WIDE, num_experts=8, num_experts_per_tok=3, norm_topk_prob=True),
        transformers.Glm4MoeConfig(
            **WIDE, n_routed_experts=16, num_experts_per_tok=3, n_group=2, first_k_dense_replace=2, use_qk_norm=True
        ),
        transformers.AfmoeConfig(**WIDE, **MOE, head_dim=10, route_scale=2.0, mup_enabled=True, num_dense_layers=2),
        transformers.MiniMaxM2Config(**WIDE, head_dim=10, num_local_experts=8, rope_parameters=YARN),
        transformers.GptOssConfig(**WIDE, head_dim=10, num_local_experts=8, sliding_window=7, swiglu_limit=3.0),
        transformers.Llama4TextConfig(
            **WIDE, head_dim=10, attention_chunk_size=7, floor_scale=5, use_qk_norm=False, intermediate_size_mlp=44
        ),
    )
}


def written(config: PretrainedConfig) -> dict[str, Any]:
    """config.json as transformers writes it."""
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return values | {"model_type": config.model_type}


def same_model(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert read_config(ours, "ours", tensors=())[1] == read_config(theirs, "theirs", tensors=())[1]


@pytest.mark.parametrize("name", CONFIGS)
def test_missing_keys_take_the_default_of_the_transformers_class(name: str) -> None:
    """Each key is left out in turn, and what is then read is compared with what transformers makes of the rest."""
    values = written(CONFIGS[name])
    assert len(values) > 15
    needed = {"model_type", "vocab_size", "hidden_size", "num_hidden_layers"}
    # these two depend on others, and transformers only completes what is missing
    together = {"original_max_position_embeddings", "rope_parameters"}
    for key in values.keys() - needed - together:
        rest = {other: value for other, value in values.items() if other != key}
        try:
            theirs = written(type(CONFIGS[name])(**rest))
        except ValueError:  # such a model transformers does not build
            continue
        same_model(rest, theirs)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_written_configuration_is_read_as_the_same_model(name: str) -> None:
    _, config = read_config(written(CONFIGS[name]), "config.json")
    family, values = write_config(config)
    assert family.types[0] == name
    assert read_config(values, "written")[1] == config
    theirs = written(type(CONFIGS[name])(**values))
    same_model(theirs, values)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_unknown_key_is_listed(name: str) -> None:
    values = written(CONFIGS[name]) | {"secret_factor": 3.0}
    with pytest.raises(ArtifactError, match=r"does not understand: secret_factor = 3\.0"):
        read_config(values, "config.json")


@pytest.mark.parametrize("name", CONFIGS)
def test_unknown_and_missing_tensors_are_listed(name: str) -> None:
    family, config = read_config(written(CONFIGS[name]), "config.json", tensors=())
    names = set(family.layout(config))
    check_names(names, family.layout(config), family, "weights")
    with pytest.raises(ArtifactError, match=r"not understood: model\.layers\.1\.self_attn\.extra\.weight"):
        check_names(names | {"model.layers.1.self_attn.extra.weight"}, family.layout(config), family, "weights")
    with pytest.raises(ArtifactError, match=r"missing: model\.norm\.weight"):
        check_names(names - {"model.norm.weight"}, family.layout(config), family, "weights")


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


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3_text", "olmoe"])
def test_what_transformers_does_not_build_is_neither_read_nor_written(name: str) -> None:
    values = written(CONFIGS[name]) | {"num_attention_heads": 7, "num_key_value_heads": 7, "head_dim": 10}
    with pytest.raises(ArtifactError, match=r"hidden_size|stream"):
        read_config(values, "config.json")
