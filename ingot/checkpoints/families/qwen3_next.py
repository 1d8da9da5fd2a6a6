"""Qwen3-Next: three gated DeltaNets to one gated attention, a mixture with a gated shared expert in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    FULL,
    attention_layout,
    blocks_of,
    common_config,
    feed_forward_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    read_layer_types,
    rope_of,
    stack_layout,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout, TensorMap, ViewPair, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import mixture_layout, sparse_layers, write_mixture
from ingot.checkpoints.families.recurrent import gated_delta_layout, grouped, within
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig, MultiTokenConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.gated_delta import GatedDeltaConfig

LINEAR = "linear_attention"
STEPS = "num_nextn_predict_layers"


def read_qwen3_next(keys: Keys) -> ModelConfig:
    depth, every = keys.need("num_hidden_layers"), keys.get("full_attention_interval", 4)
    keys.expect(attention_bias=False)
    attention = read_attention(
        keys,
        heads=16,
        key_value_heads=2,
        head_width=256,
        query_key_norm="head",
        gate={},
        rope=read_rope(keys, share=0.25, context=32768),
    )
    linear = {
        "kind": "gated_delta",
        "key_heads": keys.get("linear_num_key_heads", 16),
        "value_heads": keys.get("linear_num_value_heads", 32),
        "key_width": keys.get("linear_key_head_dim", 128),
        "value_width": keys.get("linear_value_head_dim", 128),
        "convolution": keys.get("linear_conv_kernel_dim", 4),
    }
    activation = read_activation(keys)
    mixture = {
        "kind": "moe",
        "experts": keys.get("num_experts", 512),
        "active": keys.get("num_experts_per_tok", 10),
        "expert": {"width": keys.get("moe_intermediate_size", 512), "activation": activation},
        "shared": {"width": keys.get("shared_expert_intermediate_size", 512), "activation": activation},
        "shared_gate": True,
        "router": {"renormalise": keys.get("norm_topk_prob", True)},
    }
    dense = {"width": keys.get("intermediate_size", 5632), "activation": activation}
    types = read_layer_types(keys, depth, lambda layer: LINEAR if (layer + 1) % every else FULL, (FULL, LINEAR))
    only: list[int] = keys.get("mlp_only_layers", [])
    step = keys.get("decoder_sparse_step", 1)
    blocks = [
        {
            "mixer": attention if kind == FULL else linear,
            "feed_forward": dense if layer in only or (layer + 1) % step else mixture,
        }
        for layer, kind in enumerate(types)
    ]
    norm = {"zero_centred": True, "cast": "after_gain"}
    model = make_model(keys, blocks, epsilon=1e-6, context=32768, norm=norm)
    return _read_multi_token(keys, model)


def _read_multi_token(keys: Keys, model: ModelConfig) -> ModelConfig:
    """The module that released checkpoints have under `mtp.`: a layer like the last one, with full attention."""
    found = keys.tensors is not None and "mtp.fc.weight" in keys.tensors
    steps = keys.get(STEPS, 1 if found else 0)
    if not steps or (keys.tensors is not None and not found):
        return model
    if steps > 1:
        keys.refuse(f"{STEPS} = {steps}")
    return model.model_copy(update={"multi_token": MultiTokenConfig(steps=1, block=model.layer_names[-1])})


def write_qwen3_next(config: ModelConfig) -> Mapping[str, Any]:
    attention, linear, mixture = need(config, AttentionConfig), need(config, GatedDeltaConfig), need(config, MoeConfig)
    blocks = blocks_of(config)
    return {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(rope_of(config)),
        **write_mixture(config),
        "linear_num_key_heads": linear.key_heads,
        "linear_num_value_heads": linear.value_heads,
        "linear_key_head_dim": linear.key_width,
        "linear_value_head_dim": linear.value_width,
        "linear_conv_kernel_dim": linear.convolution,
        "num_experts": mixture.experts,
        "shared_expert_intermediate_size": mixture.shared.width if mixture.shared else 0,
        "norm_topk_prob": mixture.router.renormalise,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [layer for layer, sparse in enumerate(sparse_layers(config)) if not sparse],
        "layer_types": [FULL if isinstance(block.mixer, AttentionConfig) else LINEAR for block in blocks],
        **({STEPS: 1} if config.multi_token is not None else {}),
    }


def block_layout(ours: str, theirs: str, block: BlockConfig, width: int) -> Layout:
    """The names of Llama and of Qwen's mixtures; `q_proj` holds the query and the gate of each head."""
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    mixer = block.mixer
    if isinstance(mixer, GatedDeltaConfig):
        layout |= gated_delta_layout(f"{ours}mixer.", f"{theirs}linear_attn.", mixer, width)
    elif isinstance(mixer, AttentionConfig):
        layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", mixer)
        layout[f"{theirs}self_attn.q_proj.weight"] = _query_and_gate(f"{ours}mixer.", mixer, width)
    assert block.feed_forward is not None
    ours, theirs = f"{ours}feed_forward.", f"{theirs}mlp."
    if isinstance(block.feed_forward, MoeConfig):
        return layout | mixture_layout(ours, theirs, block.feed_forward, shared="shared_expert")
    return layout | feed_forward_layout(ours, theirs, block.feed_forward)


def _query_and_gate(ours: str, mixer: AttentionConfig, width: int) -> TensorMap:
    heads, size = mixer.heads, mixer.head_width
    query = ViewPair(f"{ours}query_key_value.weight", grouped(0, heads * size, heads), within(heads, 0, size))
    gate = ViewPair(f"{ours}gate.weight", grouped(0, heads * size, heads), within(heads, size, 2 * size))
    return TensorMap((query, gate), (2 * heads * size, width))


def qwen3_next_layout(config: ModelConfig) -> Layout:
    def layer(ours: str, theirs: str, block: BlockConfig) -> Layout:
        return block_layout(ours, theirs, block, config.width)

    layout = stack_layout(config, layer)
    if config.multi_token is not None:
        ours = "multi_token.parts.0."
        layout |= layer(f"{ours}block.", "mtp.layers.0.", config.blocks[config.multi_token.block])
        layout |= {
            "mtp.fc.weight": maps_to(f"{ours}input.weight"),
            "mtp.pre_fc_norm_embedding.weight": maps_to(f"{ours}embedding_norm.gain"),
            "mtp.pre_fc_norm_hidden.weight": maps_to(f"{ours}state_norm.gain"),
            "mtp.norm.weight": maps_to(f"{ours}norm.gain"),
        }
    return layout


QWEN3_NEXT = Family(("qwen3_next",), "Qwen3NextForCausalLM", read_qwen3_next, write_qwen3_next, qwen3_next_layout)
