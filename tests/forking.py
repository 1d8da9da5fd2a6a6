"""Processes that start in milliseconds: forked from a server that has imported already what takes seconds.

Multiprocessing has one such server for all tests of a process, and the first to start it says what it imports: all ask here.
"""

from __future__ import annotations

import gc
import multiprocessing
from multiprocessing.context import ForkServerContext
from unittest.mock import patch

IMPORTED_ONCE = [
    "ingot.data.annotate",
    "ingot.data.native",
    "ingot.data.read.read",
    "ingot.post.samplers.worker",
    "ingot.train.parallel.tensor",
    "ingot.train.pretrain",
    "pyarrow.compute",
    "pyarrow.parquet",
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
