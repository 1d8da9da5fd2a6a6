"""Qwen3-Next: three gated DeltaNets to one gated attention, a mixture with a gated shared expert in every layer."""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family, Layout, TensorMap, ViewPair, maps_to
from ingot.checkpoints.families.keys import FULL, LINEAR, Keys, Table, Values, written
from ingot.checkpoints.families.layouts import BlockLayout, Names, stacked
from ingot.checkpoints.families.mixture import read_mixture, with_shared
from ingot.checkpoints.families.qwen_moe import read_channels, read_softmax_router, write_channels
from ingot.checkpoints.families.recurrent import grouped, within
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import BlockConfig, ModelConfig, MultiTokenConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.gated_delta import GatedDeltaConfig
from ingot.model.mixers.mixer import Site

CONTEXT = 32768
STEPS = "num_nextn_predict_layers"
NAMES = Names(recurrent="linear_attn", gate=None, shared="shared_expert")
DELTA: Table = {
    "linear_num_key_heads": ("key_heads", 16),
    "linear_num_value_heads": ("value_heads", 32),
    "linear_key_head_dim": ("key_width", 128),
    "linear_value_head_dim": ("value_width", 128),
    "linear_conv_kernel_dim": ("convolution", 4),
}
MODULE = {
    "fc.weight": "input.weight",
    "pre_fc_norm_embedding.weight": "embedding_norm.gain",
    "pre_fc_norm_hidden.weight": "state_norm.gain",
    "norm.weight": "norm.gain",
}
"""Tensors of the multi-token module besides its layer, theirs: ours."""


def read_qwen3_next(keys: Keys) -> ModelConfig:
    keys.expect(attention_bias=False)
    every, rope = keys.get("full_attention_interval", 4), read_rope(keys, share=0.25, context=CONTEXT)
    attention = common.read_attention(
        keys, heads=16, key_value_heads=2, head_width=256, query_key_norm="head", gate={}, rope=rope
    )
    mixers = {FULL: attention, LINEAR: {"kind": "gated_delta", **keys.fields(DELTA)}}
    mixture = read_mixture(keys, experts=512, active=10, width=512, router=read_softmax_router(keys, renormalise=True))
    mixture = with_shared(mixture, keys.get("shared_expert_intermediate_size", 512), shared_gate=True)
    channels = read_channels(keys, common.read_feed_forward(keys, 5632), mixture)
    types = common.read_layer_types(keys, lambda layer: LINEAR if (layer + 1) % every else FULL, (FULL, LINEAR))
    blocks = [{"mixer": mixers[kind], "feed_forward": channel} for kind, channel in zip(types, channels, strict=True)]
    norm = {"zero_centred": True, "cast": "after_gain"}
    return _read_multi_token(keys, common.make_model(keys, blocks, epsilon=1e-6, context=CONTEXT, norm=norm))


def _read_multi_token(keys: Keys, model: ModelConfig) -> ModelConfig:
    """The module that released checkpoints have under `mtp.`: a layer like the last one, with full attention."""
    found = keys.tensors is not None and "mtp.fc.weight" in keys.tensors
    steps = keys.get(STEPS, 1 if found else 0)
    if not steps or (keys.tensors is not None and not found):
        return model
    if steps > 1:
        keys.refuse(f"{STEPS} = {steps}")
    return model.model_copy(update={"multi_token": MultiTokenConfig(steps=1, block=model.layer_names[-1])})


def write_qwen3_next(config: ModelConfig) -> Values:
    shared = common.need(config, MoeConfig).shared
    return {
        **common.softmax_config(config),
        **write_channels(config),
        **written(common.need(config, GatedDeltaConfig), DELTA),
        **common.write_recurrent_types(config, AttentionConfig),
        "shared_expert_intermediate_size": shared.width if shared else 0,
        **({STEPS: 1} if config.multi_token is not None else {}),
    }


def _layer(ours: str, theirs: str, block: BlockConfig, site: Site) -> Layout:
    layout = NAMES.layer(ours, theirs, block, site)
    if isinstance(block.mixer, AttentionConfig):
        layout[f"{theirs}self_attn.q_proj.weight"] = _query_and_gate(f"{ours}mixer.", block.mixer, site.width)
    return layout


def _query_and_gate(ours: str, mixer: AttentionConfig, width: int) -> TensorMap:
    heads, size = mixer.heads, mixer.head_width
    query = ViewPair(f"{ours}query_key_value.weight", grouped(0, heads * size, heads), within(heads, 0, size))
    gate = ViewPair(f"{ours}gate.weight", grouped(0, heads * size, heads), within(heads, size, 2 * size))
    return TensorMap((query, gate), (2 * heads * size, width))


def _module_layout(config: ModelConfig, layer: BlockLayout) -> Layout:
    if config.multi_token is None:
        return {}
    ours, site = "multi_token.parts.0.", Site(config.width, config.depth, config.depth, config.norm)
    layout = layer(f"{ours}block.", "mtp.layers.0.", config.blocks[config.multi_token.block], site)
    return layout | {f"mtp.{name}": maps_to(f"{ours}{part}") for name, part in MODULE.items()}


LAYOUT = stacked(_layer, modules=_module_layout)
QWEN3_NEXT = Family(("qwen3_next",), "Qwen3NextForCausalLM", read_qwen3_next, write_qwen3_next, LAYOUT)
