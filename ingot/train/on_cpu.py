"""What a training run on a CPU switches on for its time: layers and embeddings by compiled loops, and memory that is kept from
step to step.

These are switches for the whole process, like torch's own; other programs in it compute as before when the run has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ingot.model.embedding_team import look_up
from ingot.model.linear import Embedding, Linear
from ingot.model.product import multiply
from ingot.model.rooms import kept_rooms


@contextmanager
def fast_on_cpu(device: torch.device) -> Iterator[None]:
    """While inside, embeddings, and layers without a product of their own, use the loops, where these take it."""
    if device.type != "cpu":
        yield
        return
    multiply_before, look_up_before = Linear.multiply, Embedding.look_up
    Linear.multiply, Embedding.look_up = staticmethod(multiply), staticmethod(look_up)
    try:
        with kept_rooms():
            yield
    finally:
        Linear.multiply, Embedding.look_up = staticmethod(multiply_before), staticmethod(look_up_before)
