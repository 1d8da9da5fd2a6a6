"""Packed rows that several processes count together, and a stage that counts them once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ingot.tokens import packed
from ingot.tokens.pack_index import PackIndex
from ingot.tokens.packed import PackedRows
from ingot.tokens.shards import Shards
from ingot.train.pretrain import pack_index, run
from ingot.train.pretrain_config import PretrainConfig
from tests.making.stages import stage_folder
from tests.tokens.sources import write_lengths
from tests.train.parallel.ranks import run_ranks
from tests.train.pretraining import CONFIG, write_inputs

LENGTH, DOCUMENTS, GROUP = 32, 700, 64
GROUPS = -(-DOCUMENTS // GROUP)
Rows = list[tuple[list[int], list[int]]]


def rows_of(rows: PackedRows) -> Rows:
    """The first epoch, and more."""
    found = [rows.row(index) for index in range(500)]
    assert rows.per_epoch < 500
    return [(row.starts.tolist(), row.sizes.tolist()) for row in found]


def count_together(shards: Path, folder: Path) -> tuple[list[int], int, Rows]:
    """The groups that this process packed on opening, for the first time and again; its rows."""
    made: list[int] = []
    pack = PackedRows._pack

    def counted(self: PackedRows, number: int) -> packed.PackedGroup:
        made.append(number)
        return pack(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "GROUP_DOCUMENTS", GROUP)
        patch.setattr(PackedRows, "_pack", counted)
        source = Shards(shards).source("all")
        PackedRows(source, LENGTH, "1/all", "best_fit", index=pack_index(folder))
        first = len(made)
        rows = PackedRows(source, LENGTH, "1/all", "best_fit", index=pack_index(folder))
        return made[:first], len(made) - first, rows_of(rows)


def test_three_processes_count_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each packs a third of the groups, and all get all numbers; then one file is there for all, as of one alone."""
    monkeypatch.setattr(packed, "GROUP_DOCUMENTS", GROUP)
    lengths = np.minimum(1 + np.random.default_rng(1).exponential(15, DOCUMENTS).astype(np.int64), 150)
    shards = write_lengths(tmp_path / "shards", {"all": lengths})
    found = run_ranks(3, count_together, tmp_path / "store", shards, tmp_path / "packing")
    assert sorted(number for own, _, _ in found for number in own) == list(range(GROUPS))
    assert max(len(own) for own, _, _ in found) == -(-GROUPS // 3)
    assert [again for _, again, _ in found] == [0, 0, 0]
    alone = PackedRows(Shards(shards).source("all"), LENGTH, "1/all", "best_fit", index=PackIndex(tmp_path / "alone"))
    assert [rows for _, _, rows in found] == [rows_of(alone)] * 3
    (path,) = (tmp_path / "packing").iterdir()
    assert (tmp_path / "alone" / path.name).read_bytes() == path.read_bytes()


def test_a_stage_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = write_inputs(tmp_path / "inputs")
    phases = [{"until": 1.0, "weights": {"early": 1.0}}]
    config = PretrainConfig.model_validate({**CONFIG, "steps": 2, "packing": "best_fit", "phases": phases})
    counted, count = list[int](), PackedRows._count

    def count_group(rows: PackedRows, number: int) -> tuple[int, int]:
        counted.append(number)
        return count(rows, number)

    monkeypatch.setattr(PackedRows, "_count", count_group)
    for _ in range(2):
        run(config, inputs, stage_folder(tmp_path / "stage"))
    assert counted == [0]
    assert len(list((tmp_path / "stage" / "packing").iterdir())) == 1
