"""What the data order costs does not grow: not with the documents, not with the tokens, not with the steps.

Memory is measured with tracemalloc, which sees every numpy allocation and no mapped page; work is measured by counting the
calls that Python makes, and neither depends on how busy the machine is.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ingot.tokens import packed
from ingot.tokens.loader import MixtureLoader, Packing
from ingot.tokens.phases import ConstantBatch
from tests.slow import first_fast
from tests.tokens.sources import Phase, write_lengths

LENGTH = 256
GROUP = 1 << 12
FEW, MANY = 3 * GROUP, 244 * GROUP  # a million documents


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    folder = tmp_path_factory.mktemp("memory")
    generator = np.random.default_rng(0)
    return {
        count: write_lengths(folder / str(count), {"web": generator.integers(1, 20, count)}) for count in (FEW, MANY)
    }


def make(shards: Path, packing: Packing = "split") -> MixtureLoader:
    return MixtureLoader(
        shards,
        (Phase(1, {"web": 1}),),
        sequence_length=LENGTH,
        batches=ConstantBatch(16),
        total_steps=1000,
        seed=1,
        packing=packing,
        verify=False,
    )


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        kept = work()
        del kept
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def use(shards: Path, packing: Packing) -> None:
    loader = make(shards, packing)
    for step in (0, 1, 999, 10**7):
        loader.batch(step)


@pytest.mark.parametrize("packing", first_fast(["split", "greedy"]))
def test_memory_is_the_same_for_eighty_times_the_documents(
    folders: dict[int, Path], packing: Packing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "GROUP_DOCUMENTS", GROUP)
    use(folders[FEW], packing)  # imports and caches of the interpreter
    few, many = (peak_bytes(lambda count=count: use(folders[count], packing)) for count in (FEW, MANY))  # type: ignore[misc]
    table = 0 if packing == "split" else 4 * 8 * (MANY // GROUP)  # rows of each group, and an epoch's order of groups
    assert many <= 1.1 * few + 20_000 + table
    assert many < 8 * MANY / 4, "a quarter of what the documents' offsets alone would take"


def count_calls(work: Callable[[], object]) -> int:
    """Calls of functions, Python's and C's."""
    calls = 0

    def watch(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("packing", ["split", "greedy"])
def test_a_batch_costs_the_same_at_every_step(folders: dict[int, Path], packing: Packing) -> None:
    loader = make(folders[FEW], packing)
    per_epoch = FEW * 10 // LENGTH // 16
    counts = []
    for step in (0, 1, per_epoch, 1000, 10**6, 10**12):
        loader.batch(step)  # the epoch's key and the group's packing are made once and kept
        counts.append(count_calls(lambda step=step: loader.batch(step)))  # type: ignore[misc]
    assert max(counts) < 1.5 * min(counts), "only the permutation's retries differ"
