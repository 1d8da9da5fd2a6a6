"""The same tasks through Ray: the same bytes as here, and a killed worker is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.data.engine.ray_pool import RayPool
from ingot.data.engine.work import Work

from ..conftest import Recorder
from .tasks import Text, die_once, upper

pytest.importorskip("ray")


def test_the_same_bytes_and_a_killed_worker(tmp_path: Path, recorder: Recorder) -> None:
    items = [Text(f"item{number}", "deadly" if number == 2 else "word " * number) for number in range(5)]
    marks = tmp_path / "marks"
    marks.mkdir()
    with RayPool(2) as pool:
        there = Work(tmp_path / "ray", recorder, pool=pool)
        far = there.run("upper", upper, items)
        survived = there.run("die", die_once, items, {"marks": str(marks)})
    near = Work(tmp_path / "here").run("upper", upper, items)
    assert [task.files for task in far] == [task.files for task in near]  # sizes and checksums
    assert [task.key for task in far] == [task.key for task in near]
    assert [task.files for task in survived] == [task.files for task in near]
    assert any("trying again" in line for line in recorder.lines)
