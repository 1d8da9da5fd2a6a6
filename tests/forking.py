"""Processes that start in milliseconds: forked from a server that has imported already what takes seconds.

Multiprocessing has one such server for all tests of a process, and the first to start it says what it imports: all ask here.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

IMPORTED_ONCE = [
    "ingot.train.parallel.tensor",  # with torch's compiler
    "ingot.train.pretrain",
    "pytest",
    "tests.tokens.test_worlds",
    "tests.train.parallel.steps",
    "tests.train.pretraining",
    "tests.train.toy",
    "torch.distributed.fsdp",
]


def forking() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_ONCE)
    return context
