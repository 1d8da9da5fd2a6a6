"""The files of a run, read without the report: what its records and its page are compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.making.rows import read_rows

TRAINED = ("pretrain", "extend", "sft", "prefer", "rl", "distill")


def entries(run: Path) -> list[dict[str, Any]]:
    """The stages of run.json."""
    found: list[dict[str, Any]] = json.loads((run / "run.json").read_text(encoding="utf-8"))["stages"]
    return found


def folder_of(run: Path, stage: str) -> Path:
    """The folder of a stage."""
    return run / str(next(entry["folder"] for entry in entries(run) if entry["name"] == stage))


def value_of(run: Path, stage: str, file: str) -> Any:
    """The value of a JSON file of a stage."""
    return json.loads((folder_of(run, stage) / file).read_text(encoding="utf-8"))


def rows_of(run: Path, stage: str, file: str) -> list[dict[str, Any]]:
    """The rows of a JSONL file of a stage."""
    return read_rows(folder_of(run, stage) / file)
