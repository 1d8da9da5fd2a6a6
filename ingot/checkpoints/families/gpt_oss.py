"""gpt-oss: attention sinks, windows in every other layer, YaRN, and mixtures of clamped experts with biases.

Experts are stacked and stored as [experts, in, out], gate and up alternating channel by channel.
"""

from __future__ import annotations

from torch import Tensor

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family, Layout, TensorMap, ViewPair, maps_to
from ingot.checkpoints.families.keys import FULL, SLIDING, Keys, Values
from ingot.checkpoints.families.layouts import LLAMA_NAMES, stacked
from ingot.checkpoints.families.mixture import read_mixture, write_every_mixture
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.mixer import Site

CONTEXT = 131_072
YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""The default of the transformers class where a config.json does not mention the rotation."""


def read_gpt_oss(keys: Keys) -> ModelConfig:
    keys.ignore("hidden_act", "initial_context_length", "experts_per_token")  # fixed, and older copies of other keys
    keys.expect(swiglu_alpha=1.702)
    if not keys.has("rope_parameters") and not keys.has("rope_scaling"):
        keys = keys.having(rope_parameters=YARN)
    types = common.read_layer_types(keys, lambda layer: SLIDING if (layer + 1) % 2 else FULL)
    rope, window = read_rope(keys, base=150_000.0, context=CONTEXT), keys.raw("sliding_window", 128)
    attention = common.read_attention(
        keys, heads=64, key_value_heads=8, head_width=64, biases=True, sinks=True, rope=rope
    )
    router = {"score": "top_k_softmax", "bias": True}
    expert = {"bias": True, "clamp": keys.get("swiglu_limit", 7.0), "up_offset": 1.0}
    mixture = read_mixture(
        keys, experts=128, active=4, width=2880, key="intermediate_size", activation="swish_1702", router=router
    )
    mixture["expert"] |= expert
    blocks = [
        {"mixer": {**attention, "window": window if kind == SLIDING else None}, "feed_forward": mixture}
        for kind in types
    ]
    return common.make_model(keys, blocks, epsilon=1e-5, context=CONTEXT, norm={"cast": "after_gain"})


def write_gpt_oss(config: ModelConfig) -> Values:
    return {
        **common.softmax_config(config),
        **common.write_layer_types(config),
        **common.write_bias(config),
        **write_every_mixture(config, "num_local_experts"),
        "swiglu_limit": common.need(config, MoeConfig).expert.clamp,
        "hidden_act": "silu",
    }


def _layer(ours: str, theirs: str, block: BlockConfig, site: Site) -> Layout:
    assert isinstance(block.feed_forward, MoeConfig)
    layout = LLAMA_NAMES.norms_and_mixer(ours, theirs, block, site)
    count, inner = block.feed_forward.experts, block.feed_forward.expert.width
    ours, theirs = f"{ours}feed_forward.", f"{theirs}mlp."
    return layout | {
        f"{theirs}router.weight": maps_to(f"{ours}router.weight"),
        f"{theirs}router.bias": maps_to(f"{ours}router.bias"),
        f"{theirs}experts.gate_up_proj": alternating(f"{ours}experts.gate_up", (count, site.width, 2 * inner)),
        f"{theirs}experts.gate_up_proj_bias": alternating(f"{ours}experts.gate_up_bias", (count, 2 * inner)),
        f"{theirs}experts.down_proj": maps_to(f"{ours}experts.down", in_then_out),
        f"{theirs}experts.down_proj_bias": maps_to(f"{ours}experts.down_bias"),
    }


def alternating(parameter: str, shape: tuple[int, ...]) -> TensorMap:
    """Their last axis is g₀ u₀ g₁ u₁ …; ours is [gate | up], the rows of each expert's matrix."""
    inner = shape[-1] // 2
    gate = ViewPair(parameter, lambda x: in_then_out(x[:, :inner]), lambda x: x[..., 0::2])
    up = ViewPair(parameter, lambda x: in_then_out(x[:, inner:]), lambda x: x[..., 1::2])
    return TensorMap((gate, up), shape)


def in_then_out(tensor: Tensor) -> Tensor:
    """The matrices of all experts, transposed; biases are unchanged."""
    return tensor.transpose(1, 2) if tensor.dim() == 3 else tensor


GPT_OSS = Family(("gpt_oss",), "GptOssForCausalLM", read_gpt_oss, write_gpt_oss, stacked(_layer))
