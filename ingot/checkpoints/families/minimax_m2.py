"""MiniMax-M2: a mixture in every layer, a partial rotation, and norms over all heads of queries and keys at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    attention_layout,
    common_config,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    rope_of,
    stack_layout,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import mixture_layout, write_mixture
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 196_608


def read_minimax_m2(keys: Keys) -> ModelConfig:
    keys.expect(
        use_qk_norm=True,
        qk_norm_type="per_layer",
        scoring_func="sigmoid",
        use_routing_bias=True,
        shared_intermediate_size=0,
        sliding_window=None,
        layernorm_full_attention_beta=1.0,
        layernorm_mlp_beta=1.0,
    )
    # Of parts that this type does not have. Released weights hold no multi-token modules; other ones would be refused.
    keys.ignore("layernorm_linear_attention_beta", "mlp_intermediate_size", "shared_moe_mode", "max_model_len")
    keys.ignore("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
    depth = keys.need("num_hidden_layers")
    if any(kind != 1 for kind in keys.get("attn_type_list", [1] * depth)):
        keys.refuse("attn_type_list with layers that are not softmax attention")
    attention = read_attention(keys, heads=48, key_value_heads=8, head_width=128, query_key_norm="full")
    share = keys.get("rotary_dim", attention["head_width"]) / attention["head_width"]
    attention["rope"] = read_rope(keys, base=5_000_000.0, share=share, context=CONTEXT)
    mixture = {
        "kind": "moe",
        "experts": keys.get("num_local_experts", keys.get("num_experts", 256)),
        "active": keys.get("num_experts_per_tok", 8),
        "expert": {"width": keys.get("intermediate_size", 1536), "activation": read_activation(keys)},
        "router": {"score": "sigmoid", "selection_bias": True, "renormalise": True},
    }
    blocks = [{"mixer": attention, "feed_forward": mixture}] * depth
    return make_model(keys, blocks, epsilon=1e-6, context=CONTEXT)


def write_minimax_m2(config: ModelConfig) -> Mapping[str, Any]:
    attention, rope = need(config, AttentionConfig), rope_of(config)
    written = write_mixture(config)
    del written["moe_intermediate_size"]
    return {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(rope),
        **written,
        "rotary_dim": rope.rotated(attention.head_width) if rope else attention.head_width,
        "num_local_experts": need(config, MoeConfig).experts,
    }


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """The names of Mixtral."""
    assert isinstance(block.mixer, AttentionConfig) and isinstance(block.feed_forward, MoeConfig)
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    return layout | mixture_layout(
        f"{ours}feed_forward.",
        f"{theirs}block_sparse_moe.",
        block.feed_forward,
        selection="e_score_correction_bias",
        names=("w1", "w3", "w2"),
    )


def minimax_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout)


MINIMAX_M2 = Family(("minimax_m2",), "MiniMaxM2ForCausalLM", read_minimax_m2, write_minimax_m2, minimax_layout)
