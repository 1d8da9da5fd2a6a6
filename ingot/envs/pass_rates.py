"""Pass rates: how often a policy solves each task, written once and read by difficulty filters.

{"id": "gsm8k-3f…", "kind": "gsm8k", "question": "…", "samples": 8, "pass_rate": 0.25, "reward": 0.25}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ingot.envs.episode import Episode
from ingot.envs.rows import need, read_rows
from ingot.workspace.files import write_text


def write_pass_rates(path: Path, episodes: Sequence[Episode]) -> int:
    """Write a row for each task; episodes whose environment failed are no samples. Returns how many rows."""
    tasks: dict[str, list[Episode]] = {}
    for each in episodes:
        if not each.failed:
            tasks.setdefault(each.task.id, []).append(each)
    rows = [
        {
            "id": name,
            "kind": samples[0].task.kind,
            "question": samples[0].task.question,
            "samples": len(samples),
            "pass_rate": sum(each.score.correct for each in samples) / len(samples),
            "reward": sum(each.score.reward for each in samples) / len(samples),
        }
        for name, samples in tasks.items()
    ]
    write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    return len(rows)


def read_pass_rates(spec: str) -> dict[str, float]:
    """The pass rate of each task, by its id."""
    return {need(row, "id", str, place): float(need(row, "pass_rate", float, place)) for place, row in read_rows(spec)}
