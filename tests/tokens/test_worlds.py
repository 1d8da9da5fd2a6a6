"""Ranks as processes that are killed: whatever the world size from one start to the next, the global batches are the same bytes.

Each process opens the shards by itself, draws its part of every step, writes it, and kills itself without warning in the
middle of a step. The next start has another world size and goes on from the last step that all ranks wrote. A phase that is
ended by hand travels in the saved state.
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest

from ingot.tokens.loader import MixtureLoader, Packing
from ingot.tokens.phases import ConstantBatch
from tests.forking import forking
from tests.slow import first_fast
from tests.tokens.sources import Phase, write_lengths

STEPS, ROWS, LENGTH, SWITCH = 24, 12, 16, 9 * 12
DEADLINE_SECONDS = 120
WORLDS = (2, 1, 4, 2, 4, 1)
PHASES = (Phase(weights={"prose": 2, "code": 1}), Phase(1.0, {"code": 1, "best": 3}))


def make(shards: Path, packing: Packing) -> MixtureLoader:
    return MixtureLoader(
        shards,
        PHASES,
        sequence_length=LENGTH,
        batches=ConstantBatch(ROWS),
        total_steps=STEPS,
        seed=11,
        packing=packing,
    )


def batch_bytes(loader: MixtureLoader, step: int, rank: int, world: int) -> list[bytes]:
    """Every tensor of a batch as bytes, row by row: concatenating the ranks' lists gives the whole batch's."""
    batch = loader.batch(step, rank, world)
    assert batch.sources is not None
    tensors = (batch.tokens, batch.targets, batch.positions, batch.documents, batch.streams["weight"], batch.sources)
    return [b"".join(tensor[row].numpy().tobytes() for tensor in tensors) for row in range(len(batch.tokens))]


def run_rank(
    shards: Path, out: Path, packing: Packing, rank: int, world: int, state: str, first: int, kill: int
) -> None:
    """Draw steps from `first` on and die while writing step `kill`; the body of a process."""
    loader = make(shards, packing)
    if state:
        loader.restore(json.loads(state))
    for step in range(first, STEPS):
        if step * ROWS == SWITCH:
            loader.next_phase(SWITCH)
        rows = batch_bytes(loader, step, rank, world)
        path = out / f"{step}-{rank}-of-{world}"
        if step == kill:
            path.with_suffix(".partial").write_bytes(rows[0])
            os.kill(os.getpid(), signal.SIGKILL)
        (out / f"state-{step + 1}").write_text(json.dumps(loader.state()), encoding="utf-8")
        path.write_bytes(b"".join(rows))


@pytest.mark.parametrize("packing", first_fast(["best_fit", "split"]))
def test_kills_and_world_sizes_change_nothing(tmp_path: Path, packing: Packing) -> None:
    generator = np.random.default_rng(8)
    counts = {"prose": 90, "code": 60, "best": 30, "validation": 5}
    lengths = {name: generator.integers(1, 41, count) for name, count in counts.items()}
    shards = write_lengths(tmp_path / "shards", lengths)
    context = forking()
    chance, first, state, drawn = random.Random(4), 0, "", list[tuple[int, int]]()
    kills: list[int] = []
    (tmp_path / "out").mkdir()
    for world in WORLDS:
        last = len(kills) + 1 == len(WORLDS)
        kill = STEPS if last else min(first + chance.randint(1, 6), STEPS - 1)
        kills.append(kill)
        arguments = [(shards, tmp_path / "out", packing, rank, world, state, first, kill) for rank in range(world)]
        ranks = [context.Process(target=run_rank, args=given, daemon=True) for given in arguments]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(DEADLINE_SECONDS)
            assert process.exitcode == (-signal.SIGKILL if kill < STEPS else 0)
        drawn += [(step, world) for step in range(first, kill)]
        first, state = kill, (tmp_path / "out" / f"state-{kill}").read_text(encoding="utf-8")
    assert [step for step, _ in drawn] == list(range(STEPS))
    assert any(kill * ROWS > SWITCH for kill in kills[:-1]), "a start that knows of the new phase by the state alone"

    single = make(shards, packing)
    single.next_phase(SWITCH)
    for step, world in drawn:
        parts = [(tmp_path / "out" / f"{step}-{rank}-of-{world}").read_bytes() for rank in range(world)]
        assert b"".join(parts) == b"".join(batch_bytes(single, step, 0, 1)), f"step {step}, drawn by {world} ranks"
    assert {name for name, _ in single.rows(SWITCH // ROWS - 1)} == {"prose", "code"}
    assert {name for name, _ in single.rows(SWITCH // ROWS)} == {"best", "code"}
