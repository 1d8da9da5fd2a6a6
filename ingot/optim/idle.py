"""Options of an optimizer that would do nothing to a model, in words.

A recipe is refused with them where it says the model (train/check.py); else the run is, before its first step (build.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ingot.model.config import ModelConfig
from ingot.model.matrices import fused_weights
from ingot.model.mixers.mixer import MixerConfig, Site
from ingot.optim.config import MuonConfig, OptimizerConfig


def idle_options(config: OptimizerConfig, model: ModelConfig) -> Iterator[tuple[str, str]]:
    """The problem and the fix of each option that would change nothing."""
    if isinstance(config, MuonConfig):
        if config.head == "muon" and model.tied_embeddings:
            yield (
                "optimizer.head: muon updates a head of its own, and this model's is its embedding (tied_embeddings)",
                "leave it out, or set tied_embeddings: false where the model begins",
            )
        if config.split_heads and not any(_has_heads(mixer, model) for mixer in _mixers(model)):
            yield "optimizer.split_heads: no mixer of this model has projections with several heads", "leave it out"
    if model.initial.base_width is not None and config.width_share(1.0) is None:
        yield (
            f"optimizer: {config.short_name} does not say what muP (model.initial.base_width) makes of its rates",
            "give its class a method width_share (ingot/optim/config.py), or set model.initial.base_width: null",
        )
    if config.qk_clip is not None and not any(mixer.clippable for mixer in _mixers(model)):
        yield (
            "optimizer.qk_clip: there is nothing to clip: no layer of this model has attention logits that its norms of queries "
            "and keys do not bound",
            "leave it out",
        )


def _mixers(model: ModelConfig) -> list[MixerConfig]:
    names = {*model.layer_names, *([] if model.multi_token is None else [model.multi_token.block])}
    return [mixer for name in sorted(names) if (mixer := model.blocks[name].mixer) is not None]


def _has_heads(mixer: MixerConfig, model: ModelConfig) -> bool:
    with torch.device("meta"):  # the module says what its weights are made of
        built = mixer.build(Site(model.width, 0, model.depth, model.norm))
    return any(part.heads > 1 for parts in fused_weights(built).values() for part in parts)
