"""Pass rates: how often a policy solves each task, written once and read by difficulty filters.

{"id": "gsm8k-3f…", "kind": "gsm8k", "question": "…", "samples": 8, "pass_rate": 0.25, "reward": 0.25}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ingot.envs.episode import Episode
from ingot.envs.rows import need, read_rows
from ingot.envs.task import Task
from ingot.workspace.files import write_text

Earned = tuple[bool, float]
"""Of one sample: whether it solves its task, and its reward."""


def earned(episode: Episode) -> Earned | None:
    """What an episode counts for; None if its environment failed."""
    return None if episode.failed else (episode.score.correct, episode.score.reward)


def write_pass_rates(path: Path, samples: Sequence[tuple[Task, Earned | None]]) -> int:
    """Write a row for each task that has samples. Returns how many rows."""
    tasks: dict[str, tuple[Task, list[Earned]]] = {}
    for task, each in samples:
        if each is not None:
            tasks.setdefault(task.id, (task, []))[1].append(each)
    rows = [
        {
            "id": task.id,
            "kind": task.kind,
            "question": task.question,
            "samples": len(known),
            "pass_rate": sum(correct for correct, _ in known) / len(known),
            "reward": sum(reward for _, reward in known) / len(known),
        }
        for task, known in tasks.values()
    ]
    write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
    return len(rows)


def read_pass_rates(spec: str) -> dict[str, float]:
    """The pass rate of each task, by its id."""
    return {need(row, "id", str, place): float(need(row, "pass_rate", float, place)) for place, row in read_rows(spec)}
