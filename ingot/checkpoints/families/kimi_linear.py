"""Kimi Linear: Kimi delta attention with latent attention without positions in between, and mixtures like DeepSeek-V3's.

config.json has keys of its own for many things, and released files another spelling of the layers (`linear_attn_config`,
counted from 1) than transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    FULL,
    blocks_of,
    common_config,
    feed_forward_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    stack_layout,
)
from ingot.checkpoints.families.deepseek import mla_layout, read_mla, write_mla
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import (
    mixture_layout,
    read_v3_mixture,
    sparse_layers,
    write_mixture,
    write_v3_mixture,
)
from ingot.checkpoints.families.recurrent import kda_layout
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.kda import KdaConfig
from ingot.model.mixers.mla import MlaConfig

LINEAR = "linear_attention"
CONTEXT = 1_048_576
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


def read_kimi_linear(keys: Keys) -> ModelConfig:
    for name, usual in SPELLINGS.items():
        value = keys.raw(name)
        if value is not None:
            keys = keys.having(**{usual: value})
    keys.expect(mla_use_nope=True, moe_router_activation_func="sigmoid", use_grouped_topk=True, moe_layer_freq=1)
    keys.expect(num_nextn_predict_layers=0)
    keys.ignore("rope_theta", "rope_scaling", "rope_parameters")  # nothing rotates
    given: dict[str, Any] = keys.get("linear_attn_config", {})
    kda = {
        "kind": "kda",
        "heads": given.get("num_heads", keys.get("linear_num_heads", 32)),
        "head_width": given.get("head_dim", keys.get("linear_head_dim", 128)),
        "convolution": given.get("short_conv_kernel_size", keys.get("linear_conv_kernel_dim", 4)),
    }
    latent = read_mla(keys, heads=32, query_latent=None)
    depth, types, kinds = keys.need("num_hidden_layers"), keys.raw("layer_types"), keys.raw("mlp_layer_types")
    full = given.get("full_attn_layers")  # counted from 1
    if types is None and full is not None:
        types = [FULL if layer + 1 in full else LINEAR for layer in range(depth)]
    types = types or [FULL if layer and layer % 4 == 0 else LINEAR for layer in range(depth)]
    first = keys.get("first_k_dense_replace", 1)
    kinds = kinds or ["dense" if layer < first else "sparse" for layer in range(depth)]
    mixture = read_v3_mixture(keys, width=1024, scaling=2.446)
    dense = {"width": keys.get("intermediate_size", 9216), "activation": read_activation(keys)}
    blocks = [
        {"mixer": latent if kind == FULL else kda, "feed_forward": mixture if channel == "sparse" else dense}
        for kind, channel in zip(types, kinds, strict=True)
    ]
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_kimi_linear(config: ModelConfig) -> Mapping[str, Any]:
    latent, kda, mixture = need(config, MlaConfig), need(config, KdaConfig), need(config, MoeConfig)
    values = {
        **common_config(config),
        **write_mla(latent),
        **write_mixture(config),
        "linear_num_heads": kda.heads,
        "linear_head_dim": kda.head_width,
        "linear_conv_kernel_dim": kda.convolution,
        **write_v3_mixture(mixture),
        "layer_types": [FULL if isinstance(block.mixer, MlaConfig) else LINEAR for block in blocks_of(config)],
        "mlp_layer_types": ["sparse" if one else "dense" for one in sparse_layers(config)],
    }
    names = {usual: name for name, usual in SPELLINGS.items() if name != "num_local_experts"}
    return {names.get(name, name): value for name, value in values.items()}


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """`self_attn` is either mixer; mixtures are called block_sparse_moe, with w1, w3 and w2 in their experts."""
    assert isinstance(block.mixer, MlaConfig | KdaConfig) and block.feed_forward is not None
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    if isinstance(block.mixer, KdaConfig):
        layout |= kda_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    else:
        layout |= mla_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    ours = f"{ours}feed_forward."
    if isinstance(block.feed_forward, MoeConfig):
        names = ("w1", "w3", "w2")
        return layout | mixture_layout(ours, f"{theirs}block_sparse_moe.", block.feed_forward, names=names)
    return layout | feed_forward_layout(ours, f"{theirs}mlp.", block.feed_forward)


def kimi_linear_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout)


KIMI_LINEAR = Family(
    ("kimi_linear",),
    "KimiLinearForCausalLM",
    read_kimi_linear,
    write_kimi_linear,
    kimi_linear_layout,
    renames=((r"\.block_sparse_moe\.(gate|up|down)_proj\.", r".mlp.\1_proj."),),  # transformers saves dense ones so
)
