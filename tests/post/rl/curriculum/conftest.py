"""Tasks from a file, and the small world's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.envs.mix import TaskMix
from ingot.workspace.files import write_jsonl
from tests.post.making import SUMS

FILE_KIND = """
from ingot.envs.files import FileEnvironment


class Sums(FileEnvironment):
    "Sums from a file."

    def read(self, row, place):
        return self.ask(row["question"], row["answer"], thinking=False)
"""


@pytest.fixture
def tasks(tmp_path: Path) -> dict[str, Any]:
    """Thirty questions of the small world as rows of a file, and the small world's own."""
    (tmp_path / "sums.py").write_text(FILE_KIND, encoding="utf-8")
    asked = TaskMix(SUMS).generate(5, 30, "train")
    write_jsonl(tmp_path / "sums.jsonl", [{"question": task.question, "answer": task.answer} for task in asked])
    name = f"{tmp_path}/sums.py:Sums"
    return {"weights": {name: 1, "no_think": 1}, name: {"train": [str(tmp_path / "sums.jsonl")]}} | {
        "no_think": {"operations": ("sum",), "largest": 5}
    }
