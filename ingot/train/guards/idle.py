"""Options of the guards that would watch nothing in a model, in words.

A recipe is refused with them where it says the model (train/check.py); else the run is, before its first step (loop.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.model.config import ModelConfig
from ingot.train.guards.config import GuardsConfig


def idle_guards(config: GuardsConfig, model: ModelConfig) -> Iterator[tuple[str, str]]:
    """The problem and the fix of each option that would change nothing."""
    channels = [model.blocks[name].feed_forward for name in model.layer_names]
    if not any(channel is not None and channel.routed is not None for channel in channels):
        for name in config.chosen("dead_expert_steps", "router_violation"):
            yield f"guards.{name}: no layer of this model has experts", "leave it out"
