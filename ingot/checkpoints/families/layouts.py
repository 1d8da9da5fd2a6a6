"""Tensor names of the parts that many families share: which Hugging Face tensor is which parameter of a layer.

A family states its names in a `Names` table; `stacked(NAMES.layer)` is then its whole layout. In every function `ours` and
`theirs` are the beginnings of the names, such as `blocks.3.mixer.` and `model.layers.3.self_attn.`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ingot.checkpoints.families.family import Layout, View, maps_to, rows
from ingot.checkpoints.families.multi_token import multi_token_layout
from ingot.checkpoints.families.recurrent import gated_delta_layout, kda_layout, lightning_layout, mamba_layout
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.gated_delta import GatedDeltaConfig
from ingot.model.mixers.kda import KdaConfig
from ingot.model.mixers.lightning import LightningConfig
from ingot.model.mixers.mamba2 import Mamba2Config
from ingot.model.mixers.mixer import MixerConfig, Site
from ingot.model.mixers.mla import MlaConfig
from ingot.model.mixers.parallel import ParallelConfig

BlockLayout = Callable[[str, str, BlockConfig, Site], Layout]


@dataclass(frozen=True)
class Names:
    """A family's names for the tensors of a layer. The defaults are the names of Llama, with DeepSeek-V3's for mixtures."""

    norms: Mapping[str, str] = field(
        default_factory=lambda: {"mixer_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}
    )
    mixer: str = "self_attn"
    recurrent: str = "self_attn"  # the mixer, where it is not softmax attention
    gate: str | None = "gate_proj"  # of gated attention; None: it is a part of another tensor
    feed_forward: str = "mlp"
    mixture: str = "mlp"
    router: str = "gate"
    selection: str = "gate.e_score_correction_bias"
    experts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")  # the projections of one expert
    shared: str = "shared_experts"

    def layer(self, ours: str, theirs: str, block: BlockConfig, site: Site) -> Layout:
        """All tensors of a layer."""
        layout, channel = self.norms_and_mixer(ours, theirs, block, site), block.feed_forward
        if isinstance(channel, MoeConfig):
            return layout | self.mixture_layout(f"{ours}feed_forward.", f"{theirs}{self.mixture}.", channel)
        if channel is not None:
            assert isinstance(channel, FeedForwardConfig), "no model type has a feed-forward of the user's own"
            layout |= feed_forward_layout(f"{ours}feed_forward.", f"{theirs}{self.feed_forward}.", channel)
        return layout

    def norms_and_mixer(self, ours: str, theirs: str, block: BlockConfig, site: Site) -> Layout:
        """The norms of the parts that the layer has, and its mixer."""
        layout: Layout = {}
        for part, name in self.norms.items():
            if getattr(block, "mixer" if part.startswith("mixer") else "feed_forward") is not None:
                layout[f"{theirs}{name}.weight"] = maps_to(f"{ours}{part}.gain")
        return layout if block.mixer is None else layout | self.mixer_layout(f"{ours}mixer.", theirs, block.mixer, site)

    def mixer_layout(self, ours: str, theirs: str, mixer: MixerConfig, site: Site) -> Layout:
        """The mixer of a layer; `theirs` is the beginning of the layer's names."""
        softmax, recurrent = f"{theirs}{self.mixer}.", f"{theirs}{self.recurrent}."
        match mixer:
            case AttentionConfig():
                return attention_layout(ours, softmax, mixer, self.gate)
            case MlaConfig():
                return mla_layout(ours, softmax, mixer)
            case ParallelConfig():
                attention = attention_layout(f"{ours}attention.", softmax, mixer.attention, self.gate)
                return attention | mamba_layout(f"{ours}mamba.", recurrent, mixer.mamba)
            case Mamba2Config():
                return mamba_layout(ours, recurrent, mixer)
            case KdaConfig():
                return kda_layout(ours, recurrent, mixer)
            case GatedDeltaConfig():
                return gated_delta_layout(ours, recurrent, mixer, site.width)
            case LightningConfig():
                return lightning_layout(ours, recurrent, mixer, site)
        raise TypeError(f"no family has tensors of a {type(mixer).__name__}")

    def mixture_layout(self, ours: str, theirs: str, mixture: MoeConfig) -> Layout:
        """Router, selection bias, experts one by one, shared expert and its gate, and the projections of a latent."""
        layout = {f"{theirs}{self.router}.weight": maps_to(f"{ours}router.weight")}
        if mixture.router.selection_bias:
            layout[f"{theirs}{self.selection}"] = maps_to(f"{ours}router.selection_bias")
        layout |= experts_layout(f"{ours}experts.", f"{theirs}experts.", mixture, self.experts)
        if mixture.shared is not None:
            layout |= feed_forward_layout(f"{ours}shared.", f"{theirs}{self.shared}.", mixture.shared)
        if mixture.shared_gate:
            layout[f"{theirs}{self.shared}_gate.weight"] = maps_to(f"{ours}shared_gate.weight")
        if mixture.latent is not None:
            layout[f"{theirs}fc1_latent_proj.weight"] = maps_to(f"{ours}latent_down.weight")
            layout[f"{theirs}fc2_latent_proj.weight"] = maps_to(f"{ours}latent_up.weight")
        return layout


LLAMA_NAMES = Names()


def stacked(
    layer: BlockLayout = LLAMA_NAMES.layer,
    *,
    stem: str = "model.",
    embedding: str = "embed_tokens",
    norm: str = "norm",
    modules: Callable[[ModelConfig, BlockLayout], Layout] = multi_token_layout,
) -> Callable[[ModelConfig], Layout]:
    """The layout of a family: embedding, layers, last norm, the head if it is a matrix of its own, multi-token modules."""

    def layout(config: ModelConfig) -> Layout:
        found = {
            f"{stem}{embedding}.weight": maps_to("embedding.weight"),
            f"{stem}{norm}.weight": maps_to("norm.gain"),
        }
        if not config.tied_embeddings:
            found["lm_head.weight"] = maps_to("output.weight")
        for number in range(config.depth):
            site = Site(config.width, number, config.depth, config.norm)
            found |= layer(f"blocks.{number}.", f"{stem}layers.{number}.", config.block(number), site)
        return found | modules(config, layer)

    return layout


def attention_layout(ours: str, theirs: str, attention: AttentionConfig, gate: str | None = None) -> Layout:
    """Separate query, key, value and output projections, norms of queries and keys, sinks, and the gate if it is named."""
    query, key = attention.heads * attention.head_width, attention.key_value_heads * attention.head_width
    cuts = {"q_proj": rows(0, query), "k_proj": rows(query, query + key), "v_proj": rows(query + key, query + 2 * key)}
    layout: Layout = {}
    for kind in ("weight", "bias") if attention.query_key_value_bias else ("weight",):
        for name, cut in cuts.items():
            layout[f"{theirs}{name}.{kind}"] = maps_to(f"{ours}query_key_value.{kind}", cut)
    layout[f"{theirs}o_proj.weight"] = maps_to(f"{ours}output.weight")
    if attention.output_bias:
        layout[f"{theirs}o_proj.bias"] = maps_to(f"{ours}output.bias")
    if attention.query_key_norm in ("head", "full"):
        layout[f"{theirs}q_norm.weight"] = maps_to(f"{ours}query_norm.gain")
        layout[f"{theirs}k_norm.weight"] = maps_to(f"{ours}key_norm.gain")
    if attention.sinks:
        layout[f"{theirs}sinks"] = maps_to(f"{ours}sinks")
    if attention.gate is not None and gate is not None:
        layout[f"{theirs}{gate}.weight"] = maps_to(f"{ours}gate.weight")
    return layout


def mla_layout(ours: str, theirs: str, mixer: MlaConfig) -> Layout:
    """The projections of latent attention, and of its indexer if it has one of its own."""
    names = {"kv_a_proj_with_mqa": "key_value_down", "kv_b_proj": "key_value_up", "o_proj": "output"}
    biased = {"kv_a_proj_with_mqa": "key_value_down", "o_proj": "output"}
    layout = {f"{theirs}kv_a_layernorm.weight": maps_to(f"{ours}key_value_norm.gain")}
    if mixer.query_latent is None:
        names["q_proj"] = "query"
    else:
        names |= {"q_a_proj": "query_down", "q_b_proj": "query_up"}
        biased["q_a_proj"] = "query_down"
        layout[f"{theirs}q_a_layernorm.weight"] = maps_to(f"{ours}query_norm.gain")
    layout |= {f"{theirs}{name}.weight": maps_to(f"{ours}{part}.weight") for name, part in names.items()}
    if mixer.bias:
        layout |= {f"{theirs}{name}.bias": maps_to(f"{ours}{part}.bias") for name, part in biased.items()}
    if mixer.sparse is not None and not mixer.sparse.shared:
        for name, part in {"wq_b": "query", "wk": "key", "weights_proj": "head_weight"}.items():
            layout[f"{theirs}indexer.{name}.weight"] = maps_to(f"{ours}indexer.{part}.weight")
        for kind in ("weight", "bias"):
            layout[f"{theirs}indexer.k_norm.{kind}"] = maps_to(f"{ours}indexer.key_norm.{kind}")
    return layout


def feed_forward_layout(ours: str, theirs: str, config: FeedForwardConfig) -> Layout:
    """Separate gate, up and down projections (up and down only if it has no gate)."""
    layout: Layout = {}
    for kind in ("weight", "bias") if config.bias else ("weight",):
        if config.gated:
            layout[f"{theirs}gate_proj.{kind}"] = maps_to(f"{ours}gate_up.{kind}", rows(0, config.width))
            layout[f"{theirs}up_proj.{kind}"] = maps_to(f"{ours}gate_up.{kind}", rows(config.width, 2 * config.width))
        else:
            layout[f"{theirs}up_proj.{kind}"] = maps_to(f"{ours}up.{kind}")
        layout[f"{theirs}down_proj.{kind}"] = maps_to(f"{ours}down.{kind}")
    return layout


def experts_layout(ours: str, theirs: str, mixture: MoeConfig, projections: tuple[str, str, str]) -> Layout:
    """One tensor per expert and projection; ours are stacked along the first axis."""
    gate, up, down = projections
    width = mixture.expert.width
    layout: Layout = {}
    for expert in range(mixture.experts):
        stem = f"{theirs}{expert}."
        if mixture.expert.gated:
            layout[f"{stem}{gate}.weight"] = maps_to(f"{ours}gate_up", _expert(expert, slice(0, width)))
            layout[f"{stem}{up}.weight"] = maps_to(f"{ours}gate_up", _expert(expert, slice(width, None)))
        else:
            layout[f"{stem}{up}.weight"] = maps_to(f"{ours}up", _expert(expert, slice(None)))
        layout[f"{stem}{down}.weight"] = maps_to(f"{ours}down", _expert(expert, slice(None)))
    return layout


def _expert(expert: int, cut: slice) -> View:
    return lambda tensor: tensor[expert, cut]
