"""DeepSeek-V2, V3 (also Kimi K2), V3.2 and GLM-5: multi-head latent attention, dense layers first, then mixtures.

V2 routes by softmax and V3 by sigmoid with a selection bias; V3.2 and GLM-5 add sparse attention. The norms on the latents
have ε = 1e-6 in all of them, whatever rms_norm_eps says.
"""

from __future__ import annotations

from typing import Any

from ingot.checkpoints.families.common import blocks_of, common_config, make_model, need, read_feed_forward
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys, Table, Values, written
from ingot.checkpoints.families.layouts import stacked
from ingot.checkpoints.families.mixture import (
    read_mixture,
    read_v3_mixture,
    sparse_layers,
    with_shared,
    write_mixture,
    write_v3_mixture,
)
from ingot.checkpoints.families.multi_token import read_multi_token, write_multi_token
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.indexer import SparseConfig
from ingot.model.mixers.mla import MlaConfig
from ingot.workspace.errors import ArtifactError

LATENT: Table = {
    "num_attention_heads": ("heads", 128),
    "kv_lora_rank": ("key_value_latent", 512),
    "qk_nope_head_dim": ("content_width", 128),
    "qk_rope_head_dim": ("rope_width", 64),
    "v_head_dim": ("value_width", 128),
    "attention_bias": ("bias", False),
}
INDEXER: Table = {
    "index_n_heads": ("heads", 64),
    "index_head_dim": ("head_width", 128),
    "index_topk": ("keep", 2048),
}


def read_mla(keys: Keys, *, query_latent: int | None, rope: Any = None, **defaults: int) -> Values:
    """Latent attention; `query_latent` and `defaults` (by key) are the class defaults."""
    keys.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    table = {name: (field, defaults.get(name, default)) for name, (field, default) in LATENT.items()}
    return {"kind": "mla", "query_latent": keys.raw("q_lora_rank", query_latent), "rope": rope, **keys.fields(table)}


def write_mla(mixer: MlaConfig) -> Values:
    """The same in config.json."""
    return {**written(mixer, LATENT), "num_key_value_heads": mixer.heads, "q_lora_rank": mixer.query_latent}


def _model(
    keys: Keys, mixers: list[Values], mixture: Values, sparse: list[bool], *, dense: int, **defaults: Any
) -> ModelConfig:
    """The model whose layers have these mixers, and a mixture where `sparse` says so; `dense` is a class default."""
    feed_forward = read_feed_forward(keys, dense)
    blocks = [
        {"mixer": mixer, "feed_forward": mixture if one else feed_forward}
        for mixer, one in zip(mixers, sparse, strict=True)
    ]
    return make_model(keys, blocks, **defaults)


def _write(config: ModelConfig) -> Values:
    mixer = need(config, MlaConfig)
    return {
        **common_config(config),
        **write_mla(mixer),
        **write_mixture(config),
        **write_rope_keys(mixer.rope),
        **write_v3_mixture(need(config, MoeConfig)),
        "first_k_dense_replace": sparse_layers(config).index(True),
    }


V3_ROUTING = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1}
"""What transformers takes for granted and vLLM and SGLang do not: without it they score by softmax, without a bias."""


def read_v2(keys: Keys) -> ModelConfig:
    limited = {"greedy": False, "group_limited_greedy": True}.get(keys.get("topk_method", "greedy"))
    if limited is None:
        keys.refuse(f"topk_method = {keys.get('topk_method', '')!r}")
    keys.expect(mlp_bias=False, norm_topk_prob=False, scoring_func="softmax", moe_layer_freq=1)
    depth, first = keys.need("num_hidden_layers"), keys.get("first_k_dense_replace", 0)
    groups, kept = keys.get("n_group", 1), keys.get("topk_group", 1)
    rope = read_rope(keys, pairing="interleaved")
    mixer = read_mla(keys, query_latent=1536, rope=rope, num_attention_heads=32)
    router = {
        "groups": groups if limited else 1,
        "kept_groups": kept if limited else 1,
        "group_value": "max",
        "scaling": keys.get("routed_scaling_factor", 1.0),
        "float32": True,
    }
    mixture = read_mixture(keys, experts=64, active=keys.need("num_experts_per_tok"), width=1407, router=router)
    mixture = with_shared(mixture, mixture["expert"]["width"] * keys.get("n_shared_experts", 2))
    sparse = [layer >= first for layer in range(depth)]
    return _model(keys, [mixer] * depth, mixture, sparse, dense=11008, epsilon=1e-6)


def write_v2(config: ModelConfig) -> Values:
    values = {**_write(config), "mlp_bias": False, "scoring_func": "softmax", "moe_layer_freq": 1}
    if values["n_group"] > 1:
        return {**values, "topk_method": "group_limited_greedy"}
    return {**values, "n_group": None, "topk_group": None, "topk_method": "greedy"}


def read_v3(keys: Keys) -> ModelConfig:
    keys.expect(topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1)
    pairing = "interleaved" if keys.get("rope_interleave", True) else "halves"
    depth, first = keys.need("num_hidden_layers"), keys.get("first_k_dense_replace", 3)
    mixer = read_mla(keys, query_latent=1536, rope=read_rope(keys, pairing=pairing, context=4096))
    mixture = read_v3_mixture(keys, groups=8, kept=4)
    sparse = [layer >= first for layer in range(depth)]
    model = _model(keys, [mixer] * depth, mixture, sparse, dense=18432, epsilon=1e-6, context=4096)
    return read_multi_token(keys, model)


def write_v3(config: ModelConfig) -> Values:
    rope = need(config, MlaConfig).rope
    interleaved = rope is None or rope.pairing == "interleaved"
    return {**_write(config), **V3_ROUTING, **write_multi_token(config), "rope_interleave": interleaved}


def _read_sparse(keys: Keys, mixer: Values, shared: list[bool], indexer: Values) -> tuple[list[Values], list[bool]]:
    """The mixer of every layer with its indexer, and which layers are mixtures."""
    keys.ignore("layer_types")  # every layer is sparse
    first, kinds = keys.get("first_k_dense_replace", 3), keys.raw("mlp_layer_types")
    kinds = kinds or ["dense" if layer < first else "sparse" for layer in range(len(shared))]
    mixers = [{**mixer, "sparse": {**indexer, "shared": one}} for one in shared]
    return mixers, [kind == "sparse" for kind in kinds]


def read_v32(keys: Keys) -> ModelConfig:
    keys.expect(topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, mlp_bias=False)
    mixer = read_mla(keys, query_latent=1536, rope=read_rope(keys, pairing="interleaved", context=163_840))
    indexer = {**keys.fields(INDEXER), "pairing": "halves"}
    mixers, sparse = _read_sparse(keys, mixer, [False] * keys.need("num_hidden_layers"), indexer)
    mixture = read_v3_mixture(keys, groups=8, kept=4)
    model = _model(keys, mixers, mixture, sparse, dense=18432, epsilon=1e-6, context=163_840)
    return read_multi_token(keys, model)


def write_v32(config: ModelConfig) -> Values:
    indexer = need(config, MlaConfig).sparse
    if indexer is None:
        raise ArtifactError("no layer has sparse attention")
    return {
        **_write(config),
        **V3_ROUTING,
        **write_multi_token(config),
        **written(indexer, INDEXER),
        "mlp_layer_types": ["sparse" if one else "dense" for one in sparse_layers(config)],
        "mlp_bias": False,
    }


def read_glm_dsa(keys: Keys) -> ModelConfig:
    keys.expect(topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, mlp_bias=False)
    keys.expect(rope_interleave=True, indexer_rope_interleave=True)
    rope = read_rope(keys, pairing="interleaved", context=202_752)
    widths = {"num_attention_heads": 64, "qk_nope_head_dim": 192, "v_head_dim": 256}
    mixer = read_mla(keys, query_latent=2048, rope=rope, **widths)
    indexer = {**keys.fields({**INDEXER, "index_n_heads": ("heads", 32)}), "pairing": "interleaved"}
    shared = [kind == "shared" for kind in _indexer_types(keys)]
    mixers, sparse = _read_sparse(keys, mixer, shared, indexer)
    model = _model(keys, mixers, read_v3_mixture(keys), sparse, dense=12288, epsilon=1e-5, context=202_752)
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


def write_glm_dsa(config: ModelConfig) -> Values:
    indexers = [block.mixer.sparse for block in blocks_of(config) if isinstance(block.mixer, MlaConfig)]
    kinds = ["shared" if isinstance(one, SparseConfig) and one.shared else "full" for one in indexers]
    return {**write_v32(config), "indexer_types": kinds}


V2 = Family(("deepseek_v2",), "DeepseekV2ForCausalLM", read_v2, write_v2, stacked())
V3 = Family(("deepseek_v3", "kimi_k2"), "DeepseekV3ForCausalLM", read_v3, write_v3, stacked())
V32 = Family(("deepseek_v32",), "DeepseekV32ForCausalLM", read_v32, write_v32, stacked())
GLM_DSA = Family(("glm_moe_dsa",), "GlmMoeDsaForCausalLM", read_glm_dsa, write_glm_dsa, stacked())
