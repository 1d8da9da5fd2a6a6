"""Estimates the memory that `distill` holds besides its training: what it samples with (post/rl/memory.py), and its teacher."""

from __future__ import annotations

from collections.abc import Mapping

from ingot.model.config import ModelConfig
from ingot.post.distill.config import DistillConfig
from ingot.post.rl.memory import sampled_memory, teacher_bytes
from ingot.workspace.estimates import SamplerMemory


def distill_memory(
    config: DistillConfig, models: Mapping[str, ModelConfig | None], processes: int = 1, device: int | None = None
) -> SamplerMemory | None:
    """The bytes that each process holds; None where the teacher's model is not known. One on a server takes none here."""
    model, teacher = models["checkpoint"], models.get("teacher")
    is_here = len(config.endpoints) < max(1, len(config.teachers))
    if model is None or (is_here and teacher is None):
        return None
    return sampled_memory(model, config, 0, teacher_bytes(config, teacher, device), processes, device)
