"""MiniMax-M2: a mixture in every layer, a partial rotation, and norms over all heads of queries and keys at once."""

from __future__ import annotations

from ingot.checkpoints.families.common import make_model, need, read_attention, rope_of, softmax_config
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys, Values
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.mixture import read_mixture, write_every_mixture
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 196_608
NAMES = Names(mixture="block_sparse_moe", selection="e_score_correction_bias", experts=("w1", "w3", "w2"))


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
    router = {"score": "sigmoid", "selection_bias": True, "renormalise": True}
    mixture = read_mixture(keys, experts=256, active=8, width=1536, key="intermediate_size", router=router)
    return make_model(keys, [{"mixer": attention, "feed_forward": mixture}] * depth, epsilon=1e-6, context=CONTEXT)


def write_minimax_m2(config: ModelConfig) -> Values:
    width, rope = need(config, AttentionConfig).head_width, rope_of(config)
    return {
        **softmax_config(config),
        **write_every_mixture(config, "num_local_experts"),
        "rotary_dim": rope.rotated(width) if rope else width,
        # what transformers takes for granted; vLLM and SGLang look for it
        "scoring_func": "sigmoid",
        "use_routing_bias": True,
        "use_qk_norm": True,
        "qk_norm_type": "per_layer",
    }


MINIMAX_M2 = Family(("minimax_m2",), "MiniMaxM2ForCausalLM", read_minimax_m2, write_minimax_m2, stacked(NAMES.layer))
