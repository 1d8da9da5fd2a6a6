"""DeepSeek-V2, V3 (also Kimi K2), V3.2 and GLM-5: multi-head latent attention, dense layers first, then mixtures.

V2 routes by softmax and V3 by sigmoid with a selection bias; V3.2 and GLM-5 add sparse attention. The norms on the latents
have ε = 1e-6 in all of them, whatever rms_norm_eps says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    blocks_of,
    common_config,
    feed_forward_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    stack_layout,
)
from ingot.checkpoints.families.family import Family, Layout, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import (
    mixture_layout,
    read_v3_mixture,
    sparse_layers,
    write_mixture,
    write_v3_mixture,
)
from ingot.checkpoints.families.multi_token import multi_token_layout, read_multi_token, write_multi_token
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.indexer import SparseConfig
from ingot.model.mixers.mla import MlaConfig
from ingot.workspace.errors import ArtifactError


def read_mla(
    keys: Keys,
    *,
    heads: int,
    query_latent: int | None,
    content: int = 128,
    value: int = 128,
    rope: Any = None,
) -> dict[str, Any]:
    """Latent attention; the numbers are the class defaults."""
    keys.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    return {
        "kind": "mla",
        "heads": keys.get("num_attention_heads", heads),
        "query_latent": keys.raw("q_lora_rank", query_latent),
        "key_value_latent": keys.get("kv_lora_rank", 512),
        "content_width": keys.get("qk_nope_head_dim", content),
        "rope_width": keys.get("qk_rope_head_dim", 64),
        "value_width": keys.get("v_head_dim", value),
        "rope": rope,
        "bias": keys.get("attention_bias", False),
    }


def write_mla(mixer: MlaConfig) -> dict[str, Any]:
    """The same in config.json."""
    return {
        "num_attention_heads": mixer.heads,
        "num_key_value_heads": mixer.heads,
        "q_lora_rank": mixer.query_latent,
        "kv_lora_rank": mixer.key_value_latent,
        "qk_nope_head_dim": mixer.content_width,
        "qk_rope_head_dim": mixer.rope_width,
        "v_head_dim": mixer.value_width,
        "attention_bias": mixer.bias,
    }


def mla_layout(ours: str, theirs: str, mixer: MlaConfig) -> Layout:
    """The projections of latent attention, and of its indexer if it has one of its own."""
    names = {"kv_a_proj_with_mqa": "key_value_down", "kv_b_proj": "key_value_up", "o_proj": "output"}
    biased = {"kv_a_proj_with_mqa": "key_value_down", "o_proj": "output"}
    layout = {f"{theirs}kv_a_layernorm.weight": maps_to(f"{ours}key_value_norm.gain")}
    if mixer.query_latent is None:
        names["q_proj"] = "query"
    else:
        names |= {"q_a_proj": "query_down", "q_b_proj": "query_up"}
        biased["q_a_proj"] = "query_down"
        layout[f"{theirs}q_a_layernorm.weight"] = maps_to(f"{ours}query_norm.gain")
    layout |= {f"{theirs}{name}.weight": maps_to(f"{ours}{part}.weight") for name, part in names.items()}
    if mixer.bias:
        layout |= {f"{theirs}{name}.bias": maps_to(f"{ours}{part}.bias") for name, part in biased.items()}
    if mixer.sparse is not None and not mixer.sparse.shared:
        for name, part in {"wq_b": "query", "wk": "key", "weights_proj": "head_weight"}.items():
            layout[f"{theirs}indexer.{name}.weight"] = maps_to(f"{ours}indexer.{part}.weight")
        for kind in ("weight", "bias"):
            layout[f"{theirs}indexer.k_norm.{kind}"] = maps_to(f"{ours}indexer.key_norm.{kind}")
    return layout


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """The names of Llama around latent attention, with a mixture instead of most feed-forwards."""
    assert isinstance(block.mixer, MlaConfig) and block.feed_forward is not None
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    layout |= mla_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    ours, theirs = f"{ours}feed_forward.", f"{theirs}mlp."
    if isinstance(block.feed_forward, MoeConfig):
        return layout | mixture_layout(ours, theirs, block.feed_forward)
    return layout | feed_forward_layout(ours, theirs, block.feed_forward)


def latent_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout) | multi_token_layout(config, block_layout)


def _model(
    keys: Keys,
    mixers: list[dict[str, Any]],
    mixture: dict[str, Any],
    sparse: list[bool],
    *,
    dense: int,
    **defaults: Any,
) -> ModelConfig:
    """The model whose layers have these mixers, and a mixture where `sparse` says so; `dense` is a class default."""
    feed_forward = {"width": keys.get("intermediate_size", dense), "activation": read_activation(keys)}
    channels = [mixture if one else feed_forward for one in sparse]
    blocks = [{"mixer": mixer, "feed_forward": one} for mixer, one in zip(mixers, channels, strict=True)]
    return make_model(keys, blocks, **defaults)


def _write(config: ModelConfig) -> dict[str, Any]:
    mixer, mixture, sparse = need(config, MlaConfig), need(config, MoeConfig), list(sparse_layers(config))
    return {
        **common_config(config),
        **write_mla(mixer),
        **write_mixture(config),
        **write_rope_keys(mixer.rope),
        **write_v3_mixture(mixture),
        "first_k_dense_replace": sparse.index(True),
    }


def read_v2(keys: Keys) -> ModelConfig:
    limited = {"greedy": False, "group_limited_greedy": True}.get(keys.get("topk_method", "greedy"))
    if limited is None:
        keys.refuse(f"topk_method = {keys.get('topk_method', '')!r}")
    keys.expect(mlp_bias=False, norm_topk_prob=False, scoring_func="softmax", moe_layer_freq=1)
    depth, first = keys.need("num_hidden_layers"), keys.get("first_k_dense_replace", 0)
    width, activation = keys.get("moe_intermediate_size", 1407), read_activation(keys)
    groups, kept = keys.get("n_group", 1), keys.get("topk_group", 1)
    mixer = read_mla(keys, heads=32, query_latent=1536, rope=read_rope(keys, pairing="interleaved"))
    mixture = {
        "kind": "moe",
        "experts": keys.get("n_routed_experts", keys.get("num_experts", 64)),
        "active": keys.need("num_experts_per_tok"),
        "expert": {"width": width, "activation": activation},
        "shared": {"width": width * keys.get("n_shared_experts", 2), "activation": activation},
        "router": {
            "groups": groups if limited else 1,
            "kept_groups": kept if limited else 1,
            "group_value": "max",
            "scaling": keys.get("routed_scaling_factor", 1.0),
            "float32": True,
        },
    }
    sparse = [layer >= first for layer in range(depth)]
    return _model(keys, [mixer] * depth, mixture, sparse, dense=11008, epsilon=1e-6)


def write_v2(config: ModelConfig) -> Mapping[str, Any]:
    values = _write(config)
    if values["n_group"] > 1:
        return {**values, "topk_method": "group_limited_greedy", "mlp_bias": False}
    return {**values, "n_group": None, "topk_group": None, "topk_method": "greedy", "mlp_bias": False}


def read_v3(keys: Keys) -> ModelConfig:
    keys.expect(topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1)
    pairing = "interleaved" if keys.get("rope_interleave", True) else "halves"
    depth, first = keys.need("num_hidden_layers"), keys.get("first_k_dense_replace", 3)
    mixer = read_mla(keys, heads=128, query_latent=1536, rope=read_rope(keys, pairing=pairing, context=4096))
    mixture = read_v3_mixture(keys, groups=8, kept=4)
    sparse = [layer >= first for layer in range(depth)]
    model = _model(keys, [mixer] * depth, mixture, sparse, dense=18432, epsilon=1e-6, context=4096)
    return read_multi_token(keys, model)


def write_v3(config: ModelConfig) -> Mapping[str, Any]:
    rope = need(config, MlaConfig).rope
    interleaved = rope is None or rope.pairing == "interleaved"
    return {**_write(config), **write_multi_token(config), "rope_interleave": interleaved}


def _read_sparse(
    keys: Keys, mixer: dict[str, Any], shared: list[bool], *, heads: int, pairing: str
) -> tuple[list[dict[str, Any]], list[bool]]:
    """The mixer of every layer with its indexer, and which layers are mixtures."""
    sparse = {
        "heads": keys.get("index_n_heads", heads),
        "head_width": keys.get("index_head_dim", 128),
        "keep": keys.get("index_topk", 2048),
        "pairing": pairing,
    }
    keys.ignore("layer_types")  # every layer is sparse
    first, kinds = keys.get("first_k_dense_replace", 3), keys.raw("mlp_layer_types")
    kinds = kinds or ["dense" if layer < first else "sparse" for layer in range(len(shared))]
    mixers = [{**mixer, "sparse": {**sparse, "shared": one}} for one in shared]
    return mixers, [kind == "sparse" for kind in kinds]


def write_v32(config: ModelConfig) -> Mapping[str, Any]:
    indexer = need(config, MlaConfig).sparse
    if indexer is None:
        raise ArtifactError("no layer has sparse attention")
    return {
        **_write(config),
        **write_multi_token(config),
        "index_topk": indexer.keep,
        "index_n_heads": indexer.heads,
        "index_head_dim": indexer.head_width,
        "mlp_layer_types": ["sparse" if one else "dense" for one in sparse_layers(config)],
        "mlp_bias": False,
    }


def read_v32(keys: Keys) -> ModelConfig:
    keys.expect(topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, mlp_bias=False)
    depth = keys.need("num_hidden_layers")
    rope = read_rope(keys, pairing="interleaved", context=163_840)
    mixer = read_mla(keys, heads=128, query_latent=1536, rope=rope)
    mixers, sparse = _read_sparse(keys, mixer, [False] * depth, heads=64, pairing="halves")
    mixture = read_v3_mixture(keys, groups=8, kept=4)
    model = _model(keys, mixers, mixture, sparse, dense=18432, epsilon=1e-6, context=163_840)
    return read_multi_token(keys, model)


def read_glm_dsa(keys: Keys) -> ModelConfig:
    keys.expect(topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, mlp_bias=False)
    keys.expect(rope_interleave=True, indexer_rope_interleave=True)
    rope = read_rope(keys, pairing="interleaved", context=202_752)
    mixer = read_mla(keys, heads=64, query_latent=2048, content=192, value=256, rope=rope)
    shared = [kind == "shared" for kind in _indexer_types(keys)]
    mixers, sparse = _read_sparse(keys, mixer, shared, heads=32, pairing="interleaved")
    mixture = read_v3_mixture(keys, groups=1, kept=1)
    model = _model(keys, mixers, mixture, sparse, dense=12288, epsilon=1e-5, context=202_752)
    return read_multi_token(keys, model)


def _indexer_types(keys: Keys) -> list[str]:
    """Which layers have an indexer and which share the one before: a list, a pattern of F and S, or a period."""
    depth, kinds, pattern = keys.need("num_hidden_layers"), keys.raw("indexer_types"), keys.raw("index_topk_pattern")
    every, offset = max(keys.get("index_topk_freq", 1), 1), keys.get("index_skip_topk_offset", 2)
    if kinds is not None:
        return list(kinds)
    if pattern is not None:
        return [{"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern]
    return ["full" if max(layer - offset + 1, 0) % every == 0 else "shared" for layer in range(depth)]


def write_glm_dsa(config: ModelConfig) -> Mapping[str, Any]:
    indexers = [block.mixer.sparse for block in blocks_of(config) if isinstance(block.mixer, MlaConfig)]
    kinds = ["shared" if isinstance(one, SparseConfig) and one.shared else "full" for one in indexers]
    return {**write_v32(config), "indexer_types": kinds}


V2 = Family(("deepseek_v2",), "DeepseekV2ForCausalLM", read_v2, write_v2, latent_layout)
V3 = Family(("deepseek_v3", "kimi_k2"), "DeepseekV3ForCausalLM", read_v3, write_v3, latent_layout)
V32 = Family(("deepseek_v32",), "DeepseekV32ForCausalLM", read_v32, write_v32, latent_layout)
GLM_DSA = Family(("glm_moe_dsa",), "GlmMoeDsaForCausalLM", read_glm_dsa, write_glm_dsa, latent_layout)
