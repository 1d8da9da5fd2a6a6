"""OLMoE: a mixture in every layer, and norms over all heads of queries and keys at once."""

from __future__ import annotations

from ingot.checkpoints.families.common import make_model, need, read_attention, softmax_config, write_bias
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys, Values
from ingot.checkpoints.families.layouts import stacked
from ingot.checkpoints.families.mixture import read_mixture, write_every_mixture
from ingot.checkpoints.families.qwen_moe import read_softmax_router
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig

CONTEXT = 4096


def read_olmoe(keys: Keys) -> ModelConfig:
    keys.expect(clip_qkv=None)
    rope, router = read_rope(keys, context=CONTEXT), read_softmax_router(keys)
    attention = read_attention(keys, heads=16, query_key_norm="full", biases=False, rope=rope)
    if attention["heads"] * attention["head_width"] != keys.need("hidden_size"):
        keys.refuse("heads that are together not as wide as the stream")  # the norm of the queries has its width
    mixture = read_mixture(keys, experts=64, active=8, width=2048, key="intermediate_size", router=router)
    blocks = [{"mixer": attention, "feed_forward": mixture}] * keys.need("num_hidden_layers")
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_olmoe(config: ModelConfig) -> Values:
    return {
        **softmax_config(config),
        **write_every_mixture(config, "num_experts"),
        **write_bias(config),
        "norm_topk_prob": need(config, MoeConfig).router.renormalise,
    }


OLMOE = Family(("olmoe",), "OlmoeForCausalLM", read_olmoe, write_olmoe, stacked())
