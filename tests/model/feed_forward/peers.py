"""The mixtures of transformers, tiny and with random weights, each with our configuration of the same thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from ingot.model.feed_forward.mixture import MixtureOfExperts, MoeConfig
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig

WIDTH, INNER, EXPERTS = 16, 12, 12
Tensors = dict[str, Tensor]


def site(width: int = WIDTH, layer: int = 0) -> Site:
    return Site(width, layer, 2, NormConfig())


@dataclass(frozen=True)
class Peer:
    """A block of transformers, how its tensors are named here, and the configuration that describes it."""

    family: str
    kind: str
    options: Mapping[str, Any]
    config: Mapping[str, Any]
    convert: Callable[[Tensors], Tensors]

    def block(self, seed: int = 0) -> nn.Module:
        """Random weights, and a random selection bias."""
        module = import_module(f"transformers.models.{self.family}.modeling_{self.family}")
        shape = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
        config = AutoConfig.for_model(
            "llama4_text" if self.family == "llama4" else self.family, **shape, **self.options
        )
        config._experts_implementation = "eager"
        block: nn.Module = getattr(module, self.kind)(config)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for _, tensor in sorted([*block.named_parameters(), *block.named_buffers()]):
                tensor.normal_(0.0, 0.1 if tensor.dim() == 1 else 0.4, generator=generator)
        return block

    def ours(self, block: nn.Module) -> MixtureOfExperts:
        """Our mixture with the same weights."""
        mixture = MixtureOfExperts(MoeConfig.model_validate({"kind": "moe", **self.config}), site())
        tensors = self.convert({**dict(block.named_parameters()), **dict(block.named_buffers())})
        mixture.load_state_dict({name: value.detach() for name, value in tensors.items()})
        return mixture


def gated_stack(given: Tensors) -> Tensors:
    return {"experts.gate_up": given["experts.gate_up_proj"], "experts.down": given["experts.down_proj"]}


def shared(given: Tensors, name: str) -> Tensors:
    gate, up, down = (given[f"{name}.{part}_proj.weight"] for part in ("gate", "up", "down"))
    return {"shared.gate_up.weight": torch.cat([gate, up]), "shared.down.weight": down}


def plain(given: Tensors) -> Tensors:
    return {"router.weight": given["gate.weight"], **gated_stack(given)}


def qwen2_moe(given: Tensors) -> Tensors:
    gate = {"shared_gate.weight": given["shared_expert_gate.weight"]}
    return plain(given) | shared(given, "shared_expert") | gate


def deepseek_v2(given: Tensors) -> Tensors:
    return plain(given) | shared(given, "shared_experts")


def biased(name: str) -> Callable[[Tensors], Tensors]:
    """The selection bias is no parameter: there is none among the gradients."""

    def convert(given: Tensors) -> Tensors:
        return {"router.selection_bias": given[name]} if name in given else {}

    return convert


def deepseek_v3(given: Tensors) -> Tensors:
    return deepseek_v2(given) | biased("gate.e_score_correction_bias")(given)


def minimax_m2(given: Tensors) -> Tensors:
    return plain(given) | biased("e_score_correction_bias")(given)


def afmoe(given: Tensors) -> Tensors:
    router = {"router.weight": given["router.gate.weight"], **biased("expert_bias")(given)}
    return router | gated_stack(given) | shared(given, "shared_experts")


def llama4(given: Tensors) -> Tensors:
    stack = {name: value.transpose(1, 2) for name, value in gated_stack(given).items()}
    return {"router.weight": given["router.weight"], **stack, **shared(given, "shared_expert")}


def gpt_oss(given: Tensors) -> Tensors:
    """Gate and up are interleaved and the matrices transposed."""
    gate_up = given["experts.gate_up_proj"]
    bias = given["experts.gate_up_proj_bias"]
    return {
        "router.weight": given["router.weight"],
        "router.bias": given["router.bias"],
        "experts.gate_up": torch.cat([gate_up[..., ::2], gate_up[..., 1::2]], -1).transpose(1, 2),
        "experts.gate_up_bias": torch.cat([bias[..., ::2], bias[..., 1::2]], -1),
        "experts.down": given["experts.down_proj"].transpose(1, 2),
        "experts.down_bias": given["experts.down_proj_bias"],
    }


def nemotron_h(given: Tensors) -> Tensors:
    latent = {"latent_down.weight": "fc1_latent_proj.weight", "latent_up.weight": "fc2_latent_proj.weight"}
    return {
        "router.weight": given["gate.weight"],
        "experts.up": given["experts.up_proj"],
        "experts.down": given["experts.down_proj"],
        "shared.up.weight": given["shared_experts.up_proj.weight"],
        "shared.down.weight": given["shared_experts.down_proj.weight"],
        **{mine: given[theirs] for mine, theirs in latent.items() if theirs in given},
        **biased("gate.e_score_correction_bias")(given),
    }


def moe(active: int, router: Mapping[str, Any], expert: Mapping[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    expert = {"width": INNER, **(expert or {})}
    return {"experts": EXPERTS, "active": active, "expert": expert, "router": router, **rest}


V3_ROUTER = {"score": "sigmoid", "selection_bias": True, "renormalise": True, "renormalise_epsilon": 1e-20}
V3_OPTIONS = {
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": INNER,
    "n_shared_experts": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
}
QWEN = {"num_experts": EXPERTS, "num_experts_per_tok": 3, "moe_intermediate_size": INNER}
GROUPS = {"n_group": 4, "topk_group": 2}
TWO_SHARED = {"shared": {"width": 2 * INNER}}
RELU = {"gated": False, "activation": "relu_squared"}
NEMOTRON = V3_OPTIONS | {"moe_shared_expert_intermediate_size": 20, "layers_block_type": ["moe", "moe"]}
V2_OPTIONS = {name: value for name, value in V3_OPTIONS.items() if name != "norm_topk_prob"}


PEERS = {
    "gpt_oss": Peer(
        "gpt_oss",
        "GptOssMLP",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 4, "intermediate_size": INNER, "swiglu_limit": 0.7},
        moe(
            4,
            {"score": "top_k_softmax", "bias": True},
            {"activation": "swish_1702", "bias": True, "clamp": 0.7, "up_offset": 1.0},
        ),
        gpt_oss,
    ),
    "qwen2_moe": Peer(
        "qwen2_moe",
        "Qwen2MoeSparseMoeBlock",
        QWEN | {"shared_expert_intermediate_size": 20},
        moe(3, {}, shared={"width": 20}, shared_gate=True),
        qwen2_moe,
    ),
    "qwen3_moe": Peer(
        "qwen3_moe", "Qwen3MoeSparseMoeBlock", QWEN | {"norm_topk_prob": True}, moe(3, {"renormalise": True}), plain
    ),
    "qwen3_next": Peer(
        "qwen3_next",
        "Qwen3NextSparseMoeBlock",
        QWEN | {"norm_topk_prob": True, "shared_expert_intermediate_size": 20},
        moe(3, {"renormalise": True}, shared={"width": 20}, shared_gate=True),
        qwen2_moe,
    ),
    "olmoe": Peer(
        "olmoe",
        "OlmoeSparseMoeBlock",
        {"num_experts": EXPERTS, "num_experts_per_tok": 5, "intermediate_size": INNER},
        moe(5, {}),
        plain,
    ),
    "minimax": Peer(
        "minimax",
        "MiniMaxSparseMoeBlock",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": INNER},
        moe(2, {"renormalise": True}),
        plain,
    ),
    "deepseek_v2, groups": Peer(
        "deepseek_v2",
        "DeepseekV2Moe",
        V2_OPTIONS | GROUPS | {"topk_method": "group_limited_greedy"},
        moe(
            3,
            {"groups": 4, "kept_groups": 2, "group_value": "max", "scaling": 2.5, "float32": True},
            **TWO_SHARED,
        ),
        deepseek_v2,
    ),
    "deepseek_v2, greedy": Peer(
        "deepseek_v2",
        "DeepseekV2Moe",
        V2_OPTIONS | {"topk_method": "greedy"},
        moe(3, {"scaling": 2.5, "float32": True}, **TWO_SHARED),
        deepseek_v2,
    ),
    "deepseek_v3, groups": Peer(
        "deepseek_v3",
        "DeepseekV3MoE",
        V3_OPTIONS | GROUPS,
        moe(3, V3_ROUTER | {"groups": 4, "kept_groups": 2, "scaling": 2.5, "float32": True}, **TWO_SHARED),
        deepseek_v3,
    ),
    "deepseek_v3, not renormalised": Peer(
        "deepseek_v3",
        "DeepseekV3MoE",
        V3_OPTIONS | {"n_group": 1, "topk_group": 1, "norm_topk_prob": False},
        moe(3, {"score": "sigmoid", "selection_bias": True, "scaling": 2.5, "float32": True}, **TWO_SHARED),
        deepseek_v3,
    ),
    "glm4_moe": Peer(
        "glm4_moe",
        "Glm4MoeMoE",
        V3_OPTIONS | {"n_group": 1, "topk_group": 1},
        moe(3, V3_ROUTER | {"scaling": 2.5, "float32": True}, **TWO_SHARED),
        deepseek_v3,
    ),
    "kimi_linear": Peer(
        "kimi_linear",
        "KimiLinearMoE",
        {
            "num_experts": EXPERTS,
            "num_experts_per_token": 3,
            "moe_intermediate_size": INNER,
            "num_shared_experts": 2,
            "num_expert_group": 3,
            "topk_group": 2,
            "routed_scaling_factor": 2.446,
        },
        moe(3, V3_ROUTER | {"groups": 3, "kept_groups": 2, "scaling": 2.446, "float32": True}, **TWO_SHARED),
        deepseek_v3,
    ),
    "afmoe": Peer(
        "afmoe",
        "AfmoeSparseMoeBlock",
        QWEN | {"num_shared_experts": 1, "route_scale": 1.7},
        moe(3, V3_ROUTER | {"scaling": 1.7}, shared={"width": INNER}),
        afmoe,
    ),
    "minimax_m2": Peer(
        "minimax_m2",
        "MiniMaxM2SparseMoeBlock",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 3, "intermediate_size": INNER},
        moe(3, {"score": "sigmoid", "selection_bias": True, "renormalise": True}),
        minimax_m2,
    ),
    "llama4": Peer(
        "llama4",
        "Llama4TextMoe",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 1, "intermediate_size": INNER},
        moe(1, {"score": "sigmoid_input"}, shared={"width": INNER}),
        llama4,
    ),
    "llama4, two experts": Peer(
        "llama4",
        "Llama4TextMoe",
        {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": INNER},
        moe(2, {"score": "sigmoid_input"}, shared={"width": INNER}),
        llama4,
    ),
    "nemotron_h": Peer(
        "nemotron_h",
        "NemotronHMoE",
        NEMOTRON | {"n_group": 1, "topk_group": 1},
        moe(3, V3_ROUTER | {"scaling": 2.5, "float32": True}, RELU, shared={"width": 20, **RELU}),
        nemotron_h,
    ),
    "nemotron_h, latent": Peer(
        "nemotron_h",
        "NemotronHMoE",
        NEMOTRON | GROUPS | {"moe_latent_size": 8},
        moe(
            3,
            V3_ROUTER | {"groups": 4, "kept_groups": 2, "scaling": 2.5, "float32": True},
            RELU,
            shared={"width": 20, **RELU},
            latent=8,
        ),
        nemotron_h,
    ),
}
