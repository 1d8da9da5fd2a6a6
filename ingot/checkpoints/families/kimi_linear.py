"""Kimi Linear: layers of Kimi delta attention, latent attention without positions in between, mixtures like DeepSeek-V3's.

config.json has keys of its own for many things, and released files another spelling of the layers (`linear_attn_config`,
counted from 1) than transformers.
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.deepseek import read_mla, write_mla
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import FULL, LINEAR, Keys, Table, Values, written
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.mixture import read_v3_mixture, sparse_layers, write_mixture, write_v3_mixture
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.kda import KdaConfig
from ingot.model.mixers.mla import MlaConfig

CONTEXT = 1_048_576
NAMES = Names(mixture="block_sparse_moe", experts=("w1", "w3", "w2"))
SPELLINGS = {
    "model_max_length": "max_position_embeddings",
    "moe_renormalize": "norm_topk_prob",
    "num_expert_group": "n_group",
    "num_experts": "n_routed_experts",
    "num_local_experts": "n_routed_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
}
"""Keys of this type and what other families call them."""
KDA: Table = {
    "linear_num_heads": ("heads", 32),
    "linear_head_dim": ("head_width", 128),
    "linear_conv_kernel_dim": ("convolution", 4),
}
RELEASED = {"num_heads": "heads", "head_dim": "head_width", "short_conv_kernel_size": "convolution"}
"""The same in `linear_attn_config`."""


def read_kimi_linear(keys: Keys) -> ModelConfig:
    keys = common.use_spellings(keys, SPELLINGS)
    keys.expect(mla_use_nope=True, moe_router_activation_func="sigmoid", use_grouped_topk=True, moe_layer_freq=1)
    keys.expect(num_nextn_predict_layers=0)
    keys.ignore("rope_theta", "rope_scaling", "rope_parameters")  # nothing rotates
    given: Values = keys.get("linear_attn_config", {})
    kda = {"kind": "kda", **keys.fields(KDA)}
    kda |= {field: given[name] for name, field in RELEASED.items() if name in given}
    latent = read_mla(keys, query_latent=None, num_attention_heads=32)
    depth, types, kinds = keys.need("num_hidden_layers"), keys.raw("layer_types"), keys.raw("mlp_layer_types")
    full = given.get("full_attn_layers")  # counted from 1
    if types is None and full is not None:
        types = [FULL if layer + 1 in full else LINEAR for layer in range(depth)]
    types = types or [FULL if layer and layer % 4 == 0 else LINEAR for layer in range(depth)]
    first = keys.get("first_k_dense_replace", 1)
    kinds = kinds or ["dense" if layer < first else "sparse" for layer in range(depth)]
    mixture, dense = read_v3_mixture(keys, width=1024, scaling=2.446), common.read_feed_forward(keys, 9216)
    blocks = [
        {"mixer": latent if kind == FULL else kda, "feed_forward": mixture if channel == "sparse" else dense}
        for kind, channel in zip(types, kinds, strict=True)
    ]
    return common.make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_kimi_linear(config: ModelConfig) -> Values:
    values = {
        **common.common_config(config),
        **write_mla(common.need(config, MlaConfig)),
        **write_mixture(config),
        **written(common.need(config, KdaConfig), KDA),
        **write_v3_mixture(common.need(config, MoeConfig)),
        **common.write_recurrent_types(config, MlaConfig),
        "mlp_layer_types": ["sparse" if one else "dense" for one in sparse_layers(config)],
    }
    names = {usual: name for name, usual in SPELLINGS.items() if name != "num_local_experts"}
    return {names.get(name, name): value for name, value in values.items()}


KIMI_LINEAR = Family(
    ("kimi_linear",),
    "KimiLinearForCausalLM",
    read_kimi_linear,
    write_kimi_linear,
    stacked(NAMES.layer),
    renames=((r"\.block_sparse_moe\.(gate|up|down)_proj\.", r".mlp.\1_proj."),),  # transformers saves dense ones so
)
