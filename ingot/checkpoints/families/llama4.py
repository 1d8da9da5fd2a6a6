"""Llama 4 (text): chunks of local attention with positions, full attention without, and mixtures that weigh their input.

Rotation pairs neighbouring channels; queries and keys are normed after it, without a gain. Full layers scale their queries
with the position instead. Experts are stacked and stored as [experts, in, out].
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family, Layout, maps_to
from ingot.checkpoints.families.gpt_oss import in_then_out
from ingot.checkpoints.families.keys import FULL, Keys, Values
from ingot.checkpoints.families.layouts import Names, feed_forward_layout, stacked
from ingot.checkpoints.families.mixture import read_mixture, sparse_layers, with_shared, write_every_mixture
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import TemperatureConfig
from ingot.model.mixers.mixer import Site

CONTEXT = 131_072
CHUNKED = "chunked_attention"
NAMES = Names(feed_forward="feed_forward")


def read_llama4(keys: Keys) -> ModelConfig:
    keys.ignore("for_llm_compressor")
    depth, rotated = keys.need("num_hidden_layers"), common.read_rotated(keys)
    types = common.read_layer_types(keys, lambda layer: CHUNKED if rotated[layer] else FULL, (FULL, CHUNKED))
    attention = common.read_attention(keys, heads=40, key_value_heads=8, head_width=128, biases=False)
    rope = read_rope(keys, base=500_000.0, pairing="interleaved", context=CONTEXT)
    temperature = {"slope": keys.get("attn_scale", 0.1), "floor": keys.get("floor_scale", 8192)}
    with_positions = {"rope": rope, "query_key_norm": "after_rope" if keys.get("use_qk_norm", True) else "none"}
    without = {"rope": None, "temperature": temperature if keys.get("attn_temperature_tuning", True) else None}
    chunk = keys.raw("attention_chunk_size", 8192)
    step = keys.get("interleave_moe_layer_step", 1)
    sparse = keys.raw("moe_layers")
    sparse = range(step - 1, depth, step) if sparse is None else sparse
    router = {"score": "sigmoid_input"}
    mixture = read_mixture(keys, experts=16, active=1, width=8192, key="intermediate_size", router=router)
    mixture = with_shared(mixture, mixture["expert"]["width"])
    dense = common.read_feed_forward(keys, 16384, "intermediate_size_mlp")
    blocks = [
        {
            "mixer": {
                **attention,
                **(with_positions if rotated[layer] else without),
                "chunk": chunk if types[layer] == CHUNKED else None,
            },
            "feed_forward": mixture if layer in sparse else dense,
        }
        for layer in range(depth)
    ]
    return common.make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_llama4(config: ModelConfig) -> Values:
    dense, attentions = common.first(config, FeedForwardConfig), common.attentions_of(config)
    temperatures = [one.temperature for one in attentions if one.temperature is not None]
    temperature = temperatures[0] if temperatures else TemperatureConfig()
    chunks = [one.chunk for one in attentions]
    return {
        **common.softmax_config(config),
        **common.write_bias(config),
        **write_every_mixture(config, "num_local_experts"),
        **common.write_rotated(config),
        "use_qk_norm": any(one.query_key_norm == "after_rope" for one in attentions),
        "layer_types": [FULL if chunk is None else CHUNKED for chunk in chunks],
        "attention_chunk_size": next((chunk for chunk in chunks if chunk is not None), config.context),
        "attn_temperature_tuning": bool(temperatures),
        "attn_scale": temperature.slope,
        "floor_scale": temperature.floor,
        "intermediate_size": common.need(config, MoeConfig).expert.width,
        "intermediate_size_mlp": common.need(config, MoeConfig).expert.width if dense is None else dense.width,
        "moe_layers": [layer for layer, sparse in enumerate(sparse_layers(config)) if sparse],
    }


def _layer(ours: str, theirs: str, block: BlockConfig, site: Site) -> Layout:
    if isinstance(block.feed_forward, FeedForwardConfig):
        return NAMES.layer(ours, theirs, block, site)
    assert isinstance(block.feed_forward, MoeConfig) and block.feed_forward.shared is not None
    layout = NAMES.norms_and_mixer(ours, theirs, block, site)
    ours, theirs = f"{ours}feed_forward.", f"{theirs}feed_forward."
    layout[f"{theirs}router.weight"] = maps_to(f"{ours}router.weight")
    layout[f"{theirs}experts.gate_up_proj"] = maps_to(f"{ours}experts.gate_up", in_then_out)
    layout[f"{theirs}experts.down_proj"] = maps_to(f"{ours}experts.down", in_then_out)
    return layout | feed_forward_layout(f"{ours}shared.", f"{theirs}shared_expert.", block.feed_forward.shared)


LLAMA4 = Family(("llama4_text",), "Llama4ForCausalLM", read_llama4, write_llama4, stacked(_layer))
