"""A checkpoint of one layout and world size is loaded in another: weights, optimizer state, and the steps after it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy
import pytest

from ingot.checkpoints.checkpoint import load_model, verify_checkpoint
from ingot.workspace.files import read_json
from tests.train.parallel.ranks import run_ranks
from tests.train.saving import layouts

STEPS = 3
LAYOUTS = {"one": 1, "fsdp2": 2, "fsdp4": 4, "tensor2": 2, "both4": 4, "copies4": 4, "expert4": 4}
counter = itertools.count()


def on(layout: str, function: Any, path: Path, *arguments: Any) -> list[Any]:
    """`function(kind, layout, …)` on as many ranks as the layout has."""
    return run_ranks(LAYOUTS[layout], function, path / f"store{next(counter)}", *arguments)


def kind_of(layout: str) -> str:
    return layout.rstrip("0123456789")


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        numpy.testing.assert_array_equal(value, other[name], err_msg=name)


@pytest.mark.parametrize(
    ("model", "saved", "loaded"),
    [
        ("moe", "both4", ("one", "expert4")),
        pytest.param("dense", "fsdp4", ("one", "tensor2"), marks=pytest.mark.slow),
        pytest.param("dense", "one", ("fsdp2", "both4"), marks=pytest.mark.slow),
        pytest.param("moe", "copies4", ("tensor2",), marks=pytest.mark.slow),
    ],
)
def test_saved_in_one_layout_and_loaded_in_others(
    model: str, saved: str, loaded: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "stage"
    states = on(saved, layouts.save, tmp_path, model, kind_of(saved), folder, STEPS)
    for other in states[1:]:
        assert_equal(other, states[0])
    assert {float(states[0][name]) for name in states[0] if name.endswith(".step")} == {STEPS}
    verify_checkpoint(folder / "steps" / "step-0000003")
    after = []
    for layout in loaded:
        for now, later in on(layout, layouts.load, tmp_path, model, kind_of(layout), folder, STEPS):
            assert_equal(now, states[0])
            after.append(later)
    final = load_model(folder)
    for later in after:
        for name, value in final.state_dict().items():
            numpy.testing.assert_array_equal(later[name], value.numpy(), err_msg=name)


def test_every_rank_writes_its_shards_and_the_manifest_names_them_all(tmp_path: Path) -> None:
    folder = tmp_path / "stage"
    on("fsdp4", layouts.save, tmp_path, "dense", "fsdp", folder, 1)
    for checkpoint in (folder / "steps" / "step-0000001", folder / "checkpoint"):
        shards = {file.name: file.stat().st_size for file in (checkpoint / "state").glob("*.distcp")}
        assert sorted(shards) == [f"__{rank}_0.distcp" for rank in range(4)]
        assert max(shards.values()) < 2 * min(shards.values()), "the work is divided"
        listed = read_json(checkpoint / "manifest.json")
        files = {file.relative_to(checkpoint).as_posix() for file in checkpoint.rglob("*") if file.is_file()}
        assert set(listed) == files - {"manifest.json"}


def test_where_one_rank_fails_all_know_and_the_checkpoint_before_stays(tmp_path: Path) -> None:
    folder = tmp_path / "stage"
    said = on("fsdp2", layouts.save_with_a_failing_rank, tmp_path, folder)
    assert said[1] == ["the disk is full"]
    assert said[0][0].startswith("rank 1 failed: OSError: the disk is full")
    assert [path.name for path in (folder / "steps").iterdir()] == ["step-0000001"]
    verify_checkpoint(folder / "steps" / "step-0000001")


def test_a_damaged_shard_is_found_by_whoever_reads_it(tmp_path: Path) -> None:
    folder = tmp_path / "stage"
    for step in (1, 2):
        on("fsdp2", layouts.save, tmp_path, "dense", "fsdp", folder, step)
    (folder / "steps" / "step-0000002" / "state" / "__1_0.distcp").write_bytes(b"x")
    for step, lines in on("fsdp2", layouts.restore_around_damage, tmp_path, folder):
        assert step == 1
        assert all("step-0000002 is damaged and passed over" in line for line in lines)


def test_a_rank_that_does_not_come_is_an_error_and_no_hang(tmp_path: Path) -> None:
    folder = tmp_path / "stage"
    said = on("fsdp2", layouts.save_without_the_other_rank, tmp_path, folder)
    assert "timed out" in said[0].lower(), said[0]
    assert list((folder / "steps").glob("*[!.partial]")) == []
