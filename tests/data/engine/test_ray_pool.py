"""The same tasks and a whole curation through Ray: the same bytes as here, and a killed worker is replaced.

What a lost node does is in ../test_ray_node.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from ingot.data.engine.pool import WorkPool
from ingot.data.engine.ray_pool import RayPool
from ingot.data.engine.work import Work
from tests.making.stages import Listener

from ..dirty import write_rows
from ..test_curate import results, stage_at
from .tasks import Text, die_once, upper

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkPool]:
    """Ray takes its time to start: one of this machine for all tests here; pools that are made later join it."""
    with RayPool(2) as started:
        yield started


def test_the_same_bytes_and_a_killed_worker(tmp_path: Path, recorder: Listener, pool: WorkPool) -> None:
    items = [Text(f"item{number}", "deadly" if number == 2 else "word " * number) for number in range(5)]
    marks = tmp_path / "marks"
    marks.mkdir()
    there = Work(tmp_path / "ray", recorder, pool=pool)
    far = there.run("upper", upper, items)
    survived = there.run("die", die_once, items, {"marks": str(marks)})
    near = Work(tmp_path / "here").run("upper", upper, items)
    assert [task.files for task in far] == [task.files for task in near]  # sizes and checksums
    assert [task.key for task in far] == [task.key for task in near]
    assert [task.files for task in survived] == [task.files for task in near]
    assert any("trying again" in line for line in recorder.lines)


@pytest.mark.slow
def test_a_curation_gives_the_same_bytes(tmp_path: Path, pool: WorkPool) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    for number in range(3):
        write_rows(rows / f"rows-{number}.jsonl", 1, seed=number)
    mine = tmp_path / "mine.py"
    mine.write_text("def shorter(text: str, most: int = 400) -> str:\n    return text[:most]\n", encoding="utf-8")
    steps = [{"step": name} for name in ("split", "exact_dedup", "gopher_quality", f"{mine}:shorter", "near_dedup")]
    options = {"sources": [{"files": f"{rows}/*.jsonl"}], "steps": steps}
    folders = {}
    for engine, workers in (("local", 1), ("ray", 2)):
        folders[engine] = stage_at(tmp_path / engine / "stage")
        config = CurateConfig.model_validate({**options, "engine": engine, "workers": workers})
        run_stage(config, {}, folders[engine])
    assert results(folders["ray"]) == results(folders["local"])
