"""Runs Python's garbage collection between steps, at the same step numbers on all ranks.

A collection in the middle of a step makes all ranks wait for one. Modules and the model live until the end, so collections skip
them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 100  # steps


@contextmanager
def no_automatic_collection() -> Iterator[None]:
    """A context in which garbage is collected by `collect` alone."""
    gc.collect()
    gc.disable()
    freezes = gc.get_freeze_count() == 0  # otherwise the caller froze, and unfreezes
    if freezes:
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        gc.enable()


def collect(step: int) -> None:
    """Collect garbage if it is due after this step."""
    if step % EVERY == 0:
        gc.collect()
