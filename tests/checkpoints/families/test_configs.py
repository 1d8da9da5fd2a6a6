"""config.json of every family: missing keys take transformers' defaults, and nothing in it is overlooked."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from ingot.checkpoints.families.keys import INERT
from ingot.checkpoints.families.table import read_config, write_config
from ingot.checkpoints.huggingface import check_names
from ingot.model.config import ModelConfig
from ingot.workspace.errors import ArtifactError
from tests.checkpoints.families.harness import LINEAR, LLAMA3, TINY, YARN

logging.getLogger("transformers").setLevel(logging.ERROR)

# No model of these sizes is built; they are such that every default of the classes fits to the other numbers.
WIDE = TINY | {"hidden_size": 3840, "num_attention_heads": 96}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MOE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 20}
MIXED = ["linear_attention", "full_attention", "linear_attention"]
LATENT: dict[str, Any] = WIDE | {
    "num_key_value_heads": 96,
    "kv_lora_rank": 16,
    "q_lora_rank": 14,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 8,
    "v_head_dim": 10,
    "moe_intermediate_size": 20,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
}
ROUTED: dict[str, Any] = LATENT | {"n_routed_experts": 16, "attention_bias": True, "rope_parameters": YARN}
SPARSE: dict[str, Any] = ROUTED | {
    "index_n_heads": 16,
    "index_head_dim": 80,
    "index_topk": 9,
    "mlp_layer_types": ["sparse", "dense", "sparse"],
    "norm_topk_prob": False,
}
CONFIGS: dict[str, PretrainedConfig] = {
    config.model_type: config
    for config in (
        transformers.LlamaConfig(**WIDE, rope_parameters=LLAMA3, attention_bias=True),
        transformers.MistralConfig(**WIDE, rope_parameters=LINEAR, sliding_window=7),
        transformers.MixtralConfig(**WIDE, num_local_experts=5, num_experts_per_tok=3, sliding_window=7),
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
        transformers.DeepseekV2Config(
            **ROUTED, topk_method="group_limited_greedy", routed_scaling_factor=16.0, first_k_dense_replace=1
        ),
        transformers.DeepseekV3Config(
            **ROUTED, first_k_dense_replace=1, rope_interleave=False, norm_topk_prob=False, routed_scaling_factor=2.8
        ),
        transformers.DeepseekV32Config(**SPARSE),
        transformers.GlmMoeDsaConfig(**SPARSE, indexer_types=["full", "shared", "full"]),
        transformers.KimiLinearConfig(
            **LATENT,
            num_local_experts=16,
            norm_topk_prob=False,
            routed_scaling_factor=2.0,
            linear_head_dim=6,
            linear_num_heads=3,
            linear_conv_kernel_dim=3,
            layer_types=MIXED,
            mlp_layer_types=["dense", "dense", "sparse"],
        ),
        transformers.Qwen3NextConfig(
            **WIDE,
            **(MOE | {"num_experts": 16}),
            head_dim=16,
            linear_key_head_dim=6,
            linear_value_head_dim=10,
            linear_num_key_heads=2,
            linear_num_value_heads=48,
            linear_conv_kernel_dim=3,
            shared_expert_intermediate_size=24,
            mlp_only_layers=[1],
            norm_topk_prob=False,
            layer_types=MIXED,
        ),
        transformers.MiniMaxConfig(
            **WIDE,
            head_dim=10,
            num_local_experts=5,
            num_experts_per_tok=3,
            layer_types=MIXED,
            full_attn_alpha_factor=1.7,
            full_attn_beta_factor=0.9,
            linear_attn_alpha_factor=1.3,
            linear_attn_beta_factor=1.1,
            mlp_alpha_factor=1.9,
            mlp_beta_factor=0.7,
        ),
        transformers.NemotronHConfig(
            **{name: value for name, value in WIDE.items() if name not in ("num_hidden_layers", "rms_norm_eps")},
            layers_block_type=["linear_attention", "mlp", "full_attention", "moe"],
            layer_norm_epsilon=0.03,
            head_dim=12,
            ssm_state_size=8,
            mamba_num_heads=16,
            mamba_head_dim=16,
            n_groups=2,
            conv_kernel=3,
            use_conv_bias=False,
            use_bias=True,
            time_step_min=0.01,
            n_routed_experts=16,
            n_group=4,
            topk_group=2,
            num_experts_per_tok=3,
            moe_intermediate_size=20,
            moe_shared_expert_intermediate_size=24,
            moe_latent_size=16,
            norm_topk_prob=False,
            routed_scaling_factor=2.0,
        ),
        transformers.FalconH1Config(
            **WIDE,
            head_dim=10,
            mamba_d_ssm=1536,
            mamba_n_heads=64,
            mamba_d_state=8,
            mamba_n_groups=2,
            mamba_d_conv=3,
            mamba_conv_bias=False,
            mamba_rms_norm=True,
            mamba_norm_before_gate=False,
            attention_bias=True,
            mlp_bias=True,
            lm_head_multiplier=0.8,
            embedding_multiplier=1.5,
            mlp_multipliers=[0.9, 1.2],
            key_multiplier=0.7,
            attention_out_multiplier=1.1,
            attention_in_multiplier=0.9,
            ssm_multipliers=[0.8, 1.1, 0.9, 1.2, 0.7],
            ssm_in_multiplier=1.3,
            ssm_out_multiplier=0.6,
        ),
    )
}


def written(config: PretrainedConfig) -> dict[str, Any]:
    """config.json as transformers writes it."""
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return values | {"model_type": config.model_type}


def built(like: PretrainedConfig, values: dict[str, Any]) -> PretrainedConfig:
    """What transformers reads from config.json: there, infinities are objects."""
    text = json.dumps(values)
    given = json.loads(text, object_hook=lambda one: float(one["__float__"]) if "__float__" in one else one)
    return type(like)(**given)


def outcome(values: dict[str, Any]) -> ModelConfig | str:
    """The model, or why there is none."""
    try:
        return read_config(values, "config.json", tensors=())[1]
    except ArtifactError as error:
        return error.problem


def same_model(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert read_config(ours, "ours", tensors=())[1] == read_config(theirs, "theirs", tensors=())[1]


@pytest.mark.parametrize("name", CONFIGS)
def test_missing_keys_take_the_default_of_the_transformers_class(name: str) -> None:
    """Each key is left out in turn, and what is then read is compared with what transformers makes of the rest."""
    values, models = written(CONFIGS[name]), 0
    needed = {"model_type", "vocab_size", "hidden_size", "num_hidden_layers"}
    # these two depend on others, and transformers only completes what is missing
    together = {"original_max_position_embeddings", "rope_parameters"}
    left_out = values.keys() - needed - together
    assert len(left_out) > 25
    for key in left_out:
        rest = {other: value for other, value in values.items() if other != key}
        try:
            theirs = outcome(written(built(CONFIGS[name], rest)))
        except (ValueError, StrictDataclassError):  # such a configuration transformers does not build
            continue
        assert outcome(rest) == theirs, key
        models += isinstance(theirs, ModelConfig)
    assert models >= len(left_out) - 2  # a default may not fit to the other numbers


@pytest.mark.parametrize("name", CONFIGS)
def test_the_written_configuration_is_read_as_the_same_model(name: str) -> None:
    _, config = read_config(written(CONFIGS[name]), "config.json")
    family, values = write_config(config)
    assert family.types[0] == name
    assert read_config(values, "written")[1] == config
    theirs = written(built(CONFIGS[name], values))
    same_model(theirs, values)


OLDER = {"rope_theta", "rope_scaling", "partial_rotary_factor", "rope_local_base_freq", "rotary_dim"}
"""The rotation in the spelling before transformers 5, which vLLM and SGLang read too."""
ROUTING = {"topk_method", "scoring_func", "moe_layer_freq"}
MORE: dict[str, set[str]] = {  # keys that the class does not save: it takes them for granted or by another name
    "deepseek_v2": ROUTING,
    "deepseek_v3": ROUTING,
    "deepseek_v32": ROUTING | {"num_nextn_predict_layers"},
    "glm_moe_dsa": ROUTING | {"num_nextn_predict_layers"},
    "minimax_m2": {"scoring_func", "use_routing_bias", "use_qk_norm", "qk_norm_type"},
    "nemotron_h": {"num_hidden_layers"},
    "qwen3_moe": {"num_experts"},  # transformers writes num_local_experts; published files have this name
    "smollm3": {"max_window_layers"},
}
FEWER: dict[str, set[str]] = {  # keys that the class saves and computes nothing with, or from others
    "deepseek_v2": {"head_dim", "qk_head_dim"},
    "deepseek_v3": {"head_dim", "qk_head_dim"},
    "deepseek_v32": {"head_dim", "qk_head_dim", "layer_types"},
    "glm_moe_dsa": {"head_dim", "qk_head_dim", "layer_types"},
    "kimi_linear": {"head_dim", "qk_head_dim"},
    "qwen3_moe": {"num_local_experts"},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_keys_are_those_that_transformers_saves(name: str) -> None:
    """Programs beside transformers read config.json by themselves: what the class saves is there or is its default."""
    theirs = written(CONFIGS[name])
    _, ours = write_config(read_config(theirs, "config.json")[1])
    assert ours["architectures"] == [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name]]
    more = ours.keys() - theirs.keys() - OLDER - {"head_dim", "architectures"}
    assert more == MORE.get(name, set()) - theirs.keys()
    default = written(type(CONFIGS[name])())
    fewer = {key for key in theirs.keys() - ours.keys() - INERT if theirs[key] != default.get(key)}
    assert fewer == FEWER.get(name, set()) - ours.keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_an_unknown_key_is_listed(name: str) -> None:
    values = written(CONFIGS[name]) | {"secret_factor": 3.0}
    with pytest.raises(ArtifactError, match=r"does not understand: secret_factor = 3\.0"):
        read_config(values, "config.json")


@pytest.mark.parametrize("name", CONFIGS)
def test_unknown_and_missing_tensors_are_listed(name: str) -> None:
    family, config = read_config(written(CONFIGS[name]), "config.json", tensors=())
    names = set(family.layout(config))
    norm = next(name for name, place in family.layout(config).items() if place.pairs[0].parameter == "norm.gain")
    check_names(names, family.layout(config), family, "weights")
    with pytest.raises(ArtifactError, match=r"not understood: model\.layers\.1\.self_attn\.extra\.weight"):
        check_names(names | {"model.layers.1.self_attn.extra.weight"}, family.layout(config), family, "weights")
    with pytest.raises(ArtifactError, match=rf"missing: {re.escape(norm)}\n"):
        check_names(names - {norm}, family.layout(config), family, "weights")
