"""What a stage's run left behind, piece by piece, so that two runs can be compared: weights, metrics, documents, scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NOT_RESULTS = ("recipe.yaml", "run.json", "report.html", "start.json", "heartbeat.json")
"""Files that repeat the options themselves, or tell of the run and not of its result."""


def outcome(folder: Path) -> dict[str, Any]:
    """Every piece by its name: a value of a JSON file, the hash of another file."""
    found: dict[str, Any] = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file() and each.name not in NOT_RESULTS):
        name = str(path.relative_to(folder))
        if path.suffix == ".json":
            found |= dict(_pieces(json.loads(path.read_text(encoding="utf-8")), name))
        elif path.suffix == ".jsonl":
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            found |= dict(_pieces(rows, name))
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _pieces(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _pieces(each, f"{name}/{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _pieces(each, f"{name}/{number}")
    else:
        yield name, value


def differs(one: Mapping[str, Any], other: Mapping[str, Any], same: Mapping[str, Any]) -> bool:
    """Whether a run differs from another in anything in which the other does not differ from `same`, its repetition."""
    steady = {name for name, value in other.items() if same.get(name, same) == value}
    fleeting = other.keys() | same.keys()
    return any(one.get(name) != other[name] for name in steady) or any(name not in fleeting for name in one)
