"""Loads a model that is only sampled from: in the precision of all samplers, bfloat16 on a GPU and float32 on a CPU."""

from __future__ import annotations

from pathlib import Path

from ingot.checkpoints.checkpoint import load_model
from ingot.model.transformer import Transformer
from ingot.train.device import choose_device, choose_sampling_precision


def load_to_sample(path: Path, *, device: str = "auto", adapter: Path | None = None) -> Transformer:
    """The model at `path`, ready for an engine."""
    where = choose_device(device)
    return load_model(path, device=where, dtype=choose_sampling_precision("auto", where), adapter=adapter).eval()
