"""When Python collects its garbage during a run: between steps, at fixed step numbers, on all ranks alike.

A collection in the middle of a step makes all ranks wait for one. Modules and model stay to the end, so collections skip them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 100  # steps


@contextmanager
def no_automatic_collection() -> Iterator[None]:
    """Inside, garbage is collected by `collect` alone."""
    gc.collect()
    gc.disable()
    freezes = gc.get_freeze_count() == 0  # else the caller froze, and unfreezes
    if freezes:
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        gc.enable()


def collect(step: int) -> None:
    """Collect after this step, if it is one of those."""
    if step % EVERY == 0:
        gc.collect()
