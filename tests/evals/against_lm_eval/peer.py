"""Tasks of lm-eval over local rows: its own task files, with the data set replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval
import yaml
from lm_eval.tasks import TaskManager

from tests.making.rows import write_rows

TASKS = Path(lm_eval.__file__).parent / "tasks"
FEW_SHOT_SEED = 1234
Rows = Sequence[Mapping[str, Any]]


def write_task(folder: Path, name: str, task_file: str, rows: Mapping[str, Rows], **changes: Any) -> Path:
    """A task file that includes one of lm-eval's, with rows of ours as its splits."""
    files = {split: str(write_rows(folder / f"{name}_{split}.jsonl", each)) for split, each in rows.items()}
    task = {
        "include": str(TASKS / task_file),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files, "cache_dir": str(folder / "cache")},
        **changes,
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(task), encoding="utf-8")
    return file


def load_task(file: Path, shots: int | None = None) -> Any:
    """The task of a task file, as `simple_evaluate` prepares it."""
    (task,) = TaskManager(include_defaults=False).load([str(file)])["tasks"].values()
    if shots is not None or task.get_config("num_fewshot") is None:
        task.set_config(key="num_fewshot", value=shots or 0)
    task.set_fewshot_seed(seed=FEW_SHOT_SEED)
    return task
