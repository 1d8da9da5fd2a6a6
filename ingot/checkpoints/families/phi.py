"""Phi-3 and Phi-4 mini: like Llama, with fused projections, a partial rotation and LongRoPE."""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family, Layout, maps_to
from ingot.checkpoints.families.keys import Keys, Values
from ingot.checkpoints.families.layouts import stacked
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.mixer import Site
from ingot.model.positions.scaling import LongRopeScaling

CONTEXT = 4096
TENSORS = {
    "input_layernorm": "mixer_norm.gain",
    "self_attn.qkv_proj": "mixer.query_key_value.weight",
    "self_attn.o_proj": "mixer.output.weight",
    "post_attention_layernorm": "feed_forward_norm.gain",
    "mlp.gate_up_proj": "feed_forward.gate_up.weight",
    "mlp.down_proj": "feed_forward.down.weight",
}
"""Tensors of a layer, theirs: ours. In both, [queries | keys | values] and [gate | up] are one matrix each."""


def read_phi3(keys: Keys) -> ModelConfig:
    keys.expect(attention_bias=False, mlp_bias=False, lm_head_bias=False, full_attn_mod=1, interpolate_factor=1)
    rope = read_rope(keys, context=CONTEXT, original=CONTEXT)
    attention = common.read_attention(keys, rope=rope, window=keys.raw("sliding_window"))
    blocks = [{"mixer": attention, "feed_forward": common.read_feed_forward(keys, 8192)}] * keys.need(
        "num_hidden_layers"
    )
    return common.make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_phi3(config: ModelConfig) -> Values:
    rope = common.rope_of(config)
    longrope = rope.scaling if rope is not None and isinstance(rope.scaling, LongRopeScaling) else None
    return {
        **common.softmax_config(config),
        **common.write_feed_forward(config),
        "original_max_position_embeddings": longrope.original_context if longrope else config.context,
        "sliding_window": common.need(config, AttentionConfig).window,
    }


def _layer(ours: str, theirs: str, block: BlockConfig, site: Site) -> Layout:
    return {f"{theirs}{name}.weight": maps_to(f"{ours}{part}") for name, part in TENSORS.items()}


PHI3 = Family(("phi3",), "Phi3ForCausalLM", read_phi3, write_phi3, stacked(_layer))
