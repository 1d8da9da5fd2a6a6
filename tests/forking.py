"""Processes that start in milliseconds: forked from a server that has imported already what takes seconds.

Multiprocessing has one such server for all tests of a process, and the first to start it says what it imports: all ask here.
"""

from __future__ import annotations

import gc
import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path
from unittest.mock import patch

import ingot

PACKAGE = Path(ingot.__file__).parent
LOOPS = [
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.glob("model/**/*loops.py")
]
IMPORTED_ONCE = [
    *sorted(LOOPS),  # with numba, and what it looks for when it loads its first kernel
    "ingot.train.parallel.tensor",
    "ingot.train.pretrain",
    "pytest",
    "tests.tokens.test_worlds",
    "tests.train.parallel.steps",
    "tests.train.pretraining",
    "tests.train.toy",
    "torch._dynamo",  # which every optimizer loads
    "torch.distributed.fsdp",
]


def forking() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_ONCE)
    return context


def freeze() -> None:
    """Collections of garbage pass over what lives now: a million objects of imported libraries. In a forked process they would
    touch, and so copy, them all.

    The trainer asks whether it is done already, and Python would count the million for the answer, which takes as long as
    some steps.
    """
    gc.freeze()
    patch.object(gc, "get_freeze_count", lambda: 1).start()
