"""Estimates the memory that `prefer` holds besides its training.

    sampler     4 B · parameters where several processes divide the model, of which it also needs the reference's
                log-probabilities; else 2 B on a GPU and nothing on a CPU, and only for the model's own answers
    reference   4 B · parameters of the input checkpoint, whole, with `refresh` and a loss that has a reference
    cache       of the engine that samples the model's own answers (inference/memory.py)

On its own answers it holds sampler and cache before it trains, and nothing of it while it does: its peak is that of the larger of
both (`before`). On files it holds the sampler alone, which reads the reference's log-probabilities, and with a loss without a
reference nothing. With `refresh`, or on rated answers (KTO), what it holds stays. Not counted: the two models of `pairs.strong`
and `weak`, which are gone before training activations come.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.inference.planned_memory import MASTER, NARROW, cache_bytes, weight_bytes
from ingot.model.config import ModelConfig
from ingot.post.prefer_config import PreferConfig
from ingot.post.sampled_answers import SLOTS
from ingot.workspace.estimates import SamplerMemory


def prefer_memory(
    config: PreferConfig, models: Mapping[str, ModelConfig | None], processes: int = 1, device: int | None = None
) -> SamplerMemory | None:
    """The bytes that each process holds."""
    model = models["checkpoint"]
    if model is None:
        return None
    whole = processes > 1
    referred, online = config.algorithm.wants_reference, config.pairs.refresh is not None
    if not config.pairs.own and not referred:
        return SamplerMemory(whole=whole)
    weights = weight_bytes(model)
    sampler = weights if whole else 0
    reference = weights if online and referred else 0
    free = None if device is None else device - weights - reference
    width = MASTER if device is None or whole else NARROW
    if config.pairs.own and width < MASTER:
        sampler = weights * width // MASTER
    cache = cache_bytes(model, SLOTS, config.sequence_length, free, width) if config.pairs.own else 0
    before = config.algorithm.paired and not online
    return SamplerMemory(sampler, reference, cache=cache, before=before, whole=whole)
