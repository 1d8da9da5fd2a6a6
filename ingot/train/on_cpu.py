"""What a training run on a CPU switches on for its time: products by compiled loops, and memory that is kept from step to step.

Both are switches for the whole process, like torch's own; other programs in it compute as before when the run has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ingot.model.linear import Linear
from ingot.model.product import multiply
from ingot.model.rooms import kept_rooms


@contextmanager
def fast_on_cpu(device: torch.device) -> Iterator[None]:
    """While inside, layers without a product of their own multiply by the loops, where these take it."""
    if device.type != "cpu":
        yield
        return
    before = Linear.multiply
    Linear.multiply = staticmethod(multiply)
    try:
        with kept_rooms():
            yield
    finally:
        Linear.multiply = staticmethod(before)
