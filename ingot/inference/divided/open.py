"""Opens an engine over several devices for a model that is there whole, in the host's memory: to serve or to measure it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ingot.inference.divided.group import EngineGroup
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError


def devices_from(first: torch.device, tensor: int) -> tuple[str, ...]:
    """`tensor` GPUs from this one on; on a CPU as many processes."""
    if first.type != "cuda":
        return (first.type,) * tensor
    start, there = first.index or 0, torch.cuda.device_count()
    if start + tensor > there:
        problem = f"an engine over {tensor} GPUs from cuda:{start} on; there are {there}"
        raise IngotError(problem, place="tensor", fix="choose a smaller tensor")
    return tuple(f"cuda:{start + rank}" for rank in range(tensor))


def open_divided(model: Transformer, devices: Sequence[str], *, slots: int, length: int | None) -> Engine:
    """An engine over these devices with the weights of `model`, which is not needed any more."""
    threads = max(1, torch.get_num_threads() // len(devices))
    group = EngineGroup(model.config, model.embedding.weight.dtype, devices, threads)
    group.model.tokenizer = model.tokenizer
    engine = Engine(group.model, slots=slots, length=length)
    engine.update(model.state_dict(), engine.version)
    return engine
