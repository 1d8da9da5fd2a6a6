"""A model's configuration in words and signs, for people: what each kind of layer is made of, and the order of the layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.config import ChannelConfig, FeedForwardConfig, MoeConfig
from ingot.model.mixers.config import (
    AttentionConfig,
    GatedDeltaConfig,
    KdaConfig,
    LightningConfig,
    Mamba2Config,
    MixerConfig,
    MlaConfig,
    ParallelConfig,
)
from ingot.model.positions.config import LongRopeScaling, RopeConfig

SIGNS = "■◆●▲□◇○△"
RESIDUALS = {
    "pre": "norm before each part",
    "post": "norm after each part",
    "sandwich": "norms before and after each part",
    "norm_residual": "the residual is the normed value",
}
LONGEST_GROUP = 16


def describe_block(block: BlockConfig) -> str:
    """One line: mixer, then feed-forward."""
    parts = [describe_mixer(block.mixer)] if block.mixer else []
    return "; ".join(parts + ([describe_feed_forward(block.feed_forward)] if block.feed_forward else []))


def describe_mixer(mixer: MixerConfig) -> str:
    """The mixer and its switches."""
    match mixer:
        case AttentionConfig():
            return ", ".join(["attention", *_attention_words(mixer)])
        case MlaConfig():
            return ", ".join(["latent attention", *_latent_words(mixer)])
        case LightningConfig():
            return f"lightning attention, {mixer.heads} heads × {mixer.head_width}"
        case GatedDeltaConfig():
            keys, values = f"{mixer.key_heads} × {mixer.key_width}", f"{mixer.value_heads} × {mixer.value_width}"
            return f"gated DeltaNet, keys {keys}, values {values}"
        case KdaConfig():
            return f"Kimi delta attention, {mixer.heads} heads × {mixer.head_width}"
        case Mamba2Config():
            groups = f", {mixer.groups} groups" if mixer.groups > 1 else ""
            return f"Mamba-2, {mixer.heads} heads × {mixer.head_width}, state {mixer.state}{groups}"
        case ParallelConfig():
            return f"{describe_mixer(mixer.attention)} ∥ {describe_mixer(mixer.mamba)}"


def _attention_words(mixer: AttentionConfig) -> list[str]:
    heads = (
        f"{mixer.heads} heads"
        if mixer.heads == mixer.key_value_heads
        else f"{mixer.heads}/{mixer.key_value_heads} heads"
    )
    words = [f"{heads} × {mixer.head_width}"]
    words += [f"window {mixer.window}"] if mixer.window else []
    words += [f"chunk {mixer.chunk}"] if mixer.chunk else []
    words.append(describe_rope(mixer.rope))
    norms = {
        "head": "QK-norm per head",
        "full": "QK-norm over all heads",
        "after_rope": "QK-norm without gain after RoPE",
    }
    words += [norms[mixer.query_key_norm]] if mixer.query_key_norm != "none" else []
    biases = "q, k, v" * mixer.query_key_value_bias + ", o" * mixer.output_bias
    words += [f"biases on {biases.removeprefix(', ')}"] if biases else []
    words += [f"scale {mixer.scale:.4g}"] if mixer.scale else []
    words += ["query temperature"] if mixer.temperature else []
    words += [f"softcap {mixer.softcap:g}"] if mixer.softcap else []
    words += ["sinks"] if mixer.sinks else []
    if mixer.gate:
        words.append(f"{mixer.gate.activation} gate on the {mixer.gate.place}, {mixer.gate.form}")
    return words


def _latent_words(mixer: MlaConfig) -> list[str]:
    query = "" if mixer.query_latent is None else f"query latent {mixer.query_latent}, "
    words = [f"{mixer.heads} heads × ({mixer.content_width} + {mixer.rope_width}, value {mixer.value_width})"]
    words += [f"{query}key-value latent {mixer.key_value_latent}", describe_rope(mixer.rope)]
    if mixer.sparse:
        own = "shared selection" if mixer.sparse.shared else f"indexer {mixer.sparse.heads} × {mixer.sparse.head_width}"
        words.append(f"{own} keeps {mixer.sparse.keep} keys")
    return words


def describe_rope(rope: RopeConfig | None) -> str:
    """Positions: base, pairing, rotated share and stretching."""
    if rope is None:
        return "NoPE"
    words = [f"RoPE θ {rope.base:.4g}".replace("e+0", "e").replace("e+", "e")]
    words += [f"{rope.share:g} of the head"] if rope.share < 1 else []
    words += ["interleaved"] if rope.pairing == "interleaved" else []
    if rope.scaling:
        scaling = rope.scaling
        factor = scaling.context / scaling.original_context if isinstance(scaling, LongRopeScaling) else scaling.factor
        words.append(f"{scaling.kind} ×{factor:g}")
    return " ".join(words)


def describe_feed_forward(feed_forward: ChannelConfig) -> str:
    """The feed-forward: dense, or router and experts."""
    if isinstance(feed_forward, FeedForwardConfig):
        return (
            f"{'gated ' if feed_forward.gated else ''}feed-forward {feed_forward.width} ({_activation(feed_forward)})"
        )
    return ", ".join(_mixture_words(feed_forward))


def _mixture_words(config: MoeConfig) -> list[str]:
    words = [f"{config.active} of {config.experts} experts × {config.expert.width} ({_activation(config.expert)})"]
    words += [f"latent {config.latent}"] if config.latent else []
    words += [f"{'gated ' if config.shared_gate else ''}shared {config.shared.width}"] if config.shared else []
    router = config.router
    scores = {"top_k_softmax": "softmax over the chosen", "sigmoid_input": "sigmoid on the input"}
    words.append(f"{scores.get(router.score, router.score)} router")
    words += [f"{router.kept_groups} of {router.groups} groups"] if router.groups > 1 else []
    words += ["selection bias"] if router.selection_bias else []
    return words


def _activation(config: FeedForwardConfig) -> str:
    return config.activation.replace("_", " ") + (f", clamped at {config.clamp:g}" if config.clamp else "")


def signs(config: ModelConfig) -> dict[str, str]:
    """A sign for every kind of layer, in the order of their first use."""
    used = dict.fromkeys(config.layer_names)
    return {name: SIGNS[number % len(SIGNS)] for number, name in enumerate(used)}


def layer_groups(names: Sequence[str]) -> list[Sequence[str]]:
    """The layers cut where their pattern repeats: what stands before it, each repeat, what stands after. Else in eights."""
    best = (0, 0, 0, 0)  # layers covered, −size of the group (the smallest is best), start, count
    for start in range(min(len(names), LONGEST_GROUP)):
        for size in range(2, min(LONGEST_GROUP, (len(names) - start) // 2) + 1):
            group, repeats = names[start : start + size], 1
            while names[start + repeats * size : start + (repeats + 1) * size] == group:
                repeats += 1
            if (
                repeats > 1 and group[0] != group[-1] and group.count(group[-1]) <= group.count(group[0])
            ):  # the rare one last
                best = max(best, (repeats * size, -size, -start, repeats))
    covered, size, start, repeats = best[0], -best[1], -best[2], best[3]
    if 2 * covered < len(names):
        return [names[first : first + 8] for first in range(0, len(names), 8)]
    cuts = [0, *(start + number * size for number in range(repeats + 1)), len(names)]
    return [names[first:last] for first, last in pairwise(cuts) if first < last]
