"""The architectures of llama.cpp that Ingot reads and writes: how their keys and tensors are called, and what they compute.

An architecture is the description of a Hugging Face model type in other words. Two things are more than names:

* `neighbours`: llama.cpp rotates channels 2i and 2i + 1 of a head where Hugging Face rotates i and i + w/2, so the rows of
  query and key projections stand in another order (layout.py);
* `implied`: what llama.cpp computes whatever the file says, as keys of config.json. Reading fills them in, so a model that
  differs in one of them is not what comes back from its own file, and is refused when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot.checkpoints.families.keys import FULL, SLIDING, Values
from ingot.workspace.errors import ArtifactError

KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
"""Keys of all architectures: key of config.json. In the file they begin with the architecture's name."""
EXPERT_KEYS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
ATTENTION = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
HEAD_NORMS = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
POST_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
DENSE = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
EXPERTS = {
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",  # one tensor for all experts
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}
MIXTRAL_EXPERTS = {
    "block_sparse_moe.gate": "ffn_gate_inp",
    "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps",
    "block_sparse_moe.experts.w2": "ffn_down_exps",
}
SHARED = {
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
QUERY_KEY_VALUE = frozenset({"attn_q", "attn_k", "attn_v"})


@dataclass(frozen=True)
class Architecture:
    """`tensors` are parts of a layer (theirs: llama.cpp's); `keys` and `implied` are those besides `KEYS`.

    `biased` may have biases. `marker` is a key whose presence tells it from another of the same name. `window_period`: the
    last of so many layers looks at everything, the others have windows. Norm gains are stored with `gain_offset` added.
    `needs_head`: a tied head is stored once more.
    """

    name: str
    model_type: str
    tensors: Mapping[str, str]
    keys: Mapping[str, str] = field(default_factory=dict)
    implied: Callable[[Values], Values] = lambda values: {}
    biased: frozenset[str] = frozenset()
    neighbours: bool = False
    marker: str | None = None
    window_period: int | None = None
    gain_offset: float = 0.0
    needs_head: bool = False
    partial_rotation: bool = False

    def layer_types(self, depth: int, window: Any) -> list[str]:
        """Which layers have windows."""
        period = self.window_period if window else None
        return [FULL if period is None or (layer + 1) % period == 0 else SLIDING for layer in range(depth)]


def _gemma(twenty_seven_billion: int) -> Callable[[Values], Values]:
    """llama.cpp scales the scores by the head's width; only for a model of that many layers by another number."""

    def implied(values: Values) -> Values:
        wide = values["num_hidden_layers"] == twenty_seven_billion
        share = values["hidden_size"] // values["num_attention_heads"]
        return {"query_pre_attn_scalar": share if wide else values["head_dim"]}

    return implied


def _as_wide_as_the_stream(values: Values) -> Values:
    """Heads that together have the width of the residual stream."""
    return {"head_dim": values["hidden_size"] // values["num_attention_heads"]}


def _qwen2_moe(values: Values) -> Values:
    return {**_as_wide_as_the_stream(values), "norm_topk_prob": False}


def _olmoe(values: Values) -> Values:
    return {**_qwen2_moe(values), "num_key_value_heads": values["num_attention_heads"]}


ARCHITECTURES = (
    Architecture(
        "llama",
        "llama",
        {**NORMS, **ATTENTION, **DENSE},
        biased=frozenset({*ATTENTION.values(), *DENSE.values()}),
        neighbours=True,
    ),
    Architecture("llama", "mistral", {**NORMS, **ATTENTION, **DENSE}, neighbours=True),  # read back as a llama
    Architecture(
        "llama",
        "mixtral",
        {**NORMS, **ATTENTION, **MIXTRAL_EXPERTS},
        {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
        neighbours=True,
        marker="expert_count",
    ),
    Architecture("smollm3", "smollm3", {**NORMS, **ATTENTION, **DENSE}, neighbours=True),
    Architecture(
        "qwen2",
        "qwen2",
        {**NORMS, **ATTENTION, **DENSE},
        implied=_as_wide_as_the_stream,
        biased=QUERY_KEY_VALUE,
    ),
    Architecture("qwen3", "qwen3", {**NORMS, **ATTENTION, **HEAD_NORMS, **DENSE}),
    Architecture(
        "qwen2moe",
        "qwen2_moe",
        {**NORMS, **ATTENTION, **EXPERTS, **SHARED},
        {
            **EXPERT_KEYS,
            "expert_feed_forward_length": "moe_intermediate_size",
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        _qwen2_moe,
        biased=QUERY_KEY_VALUE,
        needs_head=True,
    ),
    Architecture(
        "qwen3moe",
        "qwen3_moe",
        {**NORMS, **ATTENTION, **HEAD_NORMS, **EXPERTS},
        {**EXPERT_KEYS, "expert_feed_forward_length": "moe_intermediate_size"},
        lambda values: {"norm_topk_prob": True},
    ),
    Architecture(
        "olmoe",
        "olmoe",
        {**NORMS, **ATTENTION, **HEAD_NORMS, **EXPERTS},
        EXPERT_KEYS,
        _olmoe,
        needs_head=True,
    ),
    Architecture(
        "olmo2",
        "olmo2",
        {**ATTENTION, **HEAD_NORMS, **DENSE, **POST_NORMS},
        implied=_as_wide_as_the_stream,
        needs_head=True,
    ),
    Architecture(
        "olmo2",
        "olmo3",
        {**ATTENTION, **HEAD_NORMS, **DENSE, **POST_NORMS},
        implied=_as_wide_as_the_stream,
        marker=WINDOW,
        window_period=4,
        needs_head=True,
    ),
    Architecture(
        "gemma2",
        "gemma2",
        {**NORMS, **ATTENTION, **DENSE, **POST_NORMS, "pre_feedforward_layernorm": "ffn_norm"},
        {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"},
        _gemma(46),
        window_period=2,
        gain_offset=1.0,
    ),
    Architecture(
        "gemma3",
        "gemma3_text",
        {**NORMS, **ATTENTION, **HEAD_NORMS, **DENSE, **POST_NORMS, "pre_feedforward_layernorm": "ffn_norm"},
        {"rope.freq_base_swa": "rope_local_base_freq", "final_logit_softcapping": "final_logit_softcapping"},
        _gemma(62),
        window_period=6,
        gain_offset=1.0,
    ),
    Architecture(
        "phi3",
        "phi3",
        {
            **NORMS,
            "self_attn.qkv_proj": "attn_qkv",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        },
        implied=_as_wide_as_the_stream,
        partial_rotation=True,
    ),
)


def architecture_of(metadata: Mapping[str, Any], place: str) -> Architecture:
    """The architecture that a file names."""
    name = metadata.get("general.architecture")
    found = [one for one in ARCHITECTURES if one.name == name]
    if not found:
        known = ", ".join(dict.fromkeys(one.name for one in ARCHITECTURES))
        raise ArtifactError(f"unknown architecture {name!r}", place=place, fix=f"known are {known}")
    marked = [one for one in found if one.marker is not None and metadata.get(f"{name}.{one.marker}")]
    return marked[0] if marked else next(one for one in found if one.marker is None)


def architecture_for(model_type: str) -> Architecture:
    """The architecture that a Hugging Face model type is written as."""
    found = next((one for one in ARCHITECTURES if one.model_type == model_type), None)
    if found is None:
        known = ", ".join(one.model_type for one in ARCHITECTURES)
        raise ArtifactError(
            f"Ingot writes no GGUF file of a {model_type} model: it has not been compared with llama.cpp (written are {known})",
            fix="`ingot export` a folder; llama.cpp's convert_hf_to_gguf.py makes a GGUF file of it if it knows the type",
        )
    return found
