"""Tiny models on which every layout is compared with one process."""

from __future__ import annotations

from typing import Any

import torch

from ingot.model.config import ModelConfig
from ingot.train.layouts.cases import VOCABULARY as VOCABULARY

DENSE: dict[str, Any] = {"mixer": {"heads": 4, "key_value_heads": 2, "head_width": 8}, "feed_forward": {"width": 48}}
MLA: dict[str, Any] = {
    "mixer": {
        "kind": "mla",
        "heads": 4,
        "query_latent": 24,
        "key_value_latent": 16,
        "content_width": 8,
        "rope_width": 8,
        "value_width": 8,
    },
    "feed_forward": {"width": 48},
}
# enough heads that no two keys are tied, and a loss whose gradients show
INDEXER: dict[str, Any] = {"heads": 16, "head_width": 8, "keep": 4, "loss": 30.0}
MOE: dict[str, Any] = {
    "mixer": {"heads": 4, "key_value_heads": 2, "head_width": 8, "query_key_norm": "head"},
    "feed_forward": {
        "kind": "moe",
        "experts": 8,
        "active": 2,
        "expert": {"width": 16},
        "shared": {"width": 16},
        "router": {"score": "sigmoid", "selection_bias": True, "renormalise": True},
        "balancers": [{"kind": "loss", "scope": "sequence", "coefficient": 0.01}, {"kind": "bias"}],
    },
}


def shape(block: dict[str, Any], layers: int = 4, **changes: Any) -> ModelConfig:
    parts = {
        "vocabulary_size": VOCABULARY,
        "width": 32,
        "blocks": {"layer": block},
        "layers": f"layer*{layers}",
        "context": 32,
    }
    return ModelConfig.model_validate({**parts, **changes})


def sparse(**options: Any) -> dict[str, Any]:
    """A block with sparse attention."""
    return {**MLA, "mixer": {**MLA["mixer"], "sparse": {**INDEXER, **options}}}


def two_choices() -> ModelConfig:
    """Two layers choose keys, and after each comes one that shares its choice."""
    blocks = {"chooses": sparse(), "shares": sparse(shared=True)}
    return ModelConfig.model_validate(
        shape(DENSE).model_dump() | {"blocks": blocks, "layers": "chooses shares chooses shares"}
    )


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient as one tensor, wherever its shards are."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
