"""Writes a whole run folder as the stages would leave it: realistic numbers, hostile texts.

Nothing is trained: numbers come from formulas and a seeded generator, so that a test can compute what the page must
show.
"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from ingot.workspace.files import write_json, write_text

from .example_documents import (
    BANDING,
    DECONTAMINATION,
    STATISTICS,
    funnel,
    kept_table,
    problems,
    removed,
    rewritten,
)
from .example_scores import TRAINED, claims, history, samples, scores, units
from .example_training import metrics, trajectories

FOLDERS = {
    name: f"{name}-{index:02x}c0ffee42"
    for index, name in enumerate(
        ["curate", "tokenizer", "tokenize"]
        + [each for name in TRAINED for each in (name, f"eval-{name}")]
        + ["verdict"]
    )
}
SECONDS = {
    "curate": 31.4,
    "tokenizer": 8.2,
    "tokenize": 6.9,
    "pretrain": 151.6,
    "extend": 33.1,
    "sft": 62.8,
    "prefer": 24.3,
    "rl": 88.0,
    "distill": 21.7,
    "verdict": 0.1,
}


def config(stage: str) -> str:
    """A stage's resolved recipe.yaml."""
    return (
        f"# resolved configuration of {stage}\nstage: {stage}\nsteps: 1600\n"
        "optimizer:\n  name: adamw\n  learning_rate: 0.003\n"
        "  betas: [0.9, 0.95]\nschedule:\n  kind: warmup_stable_decay\n  warmup_share: 0.05\n  decay_share: 0.2\n"
        "sources:\n  - name: prose\n    weight: 0.7\n  - name: code\n    weight: 0.3\n"
        "note: \"</pre><script>document.title='owned'</script>\"\n"
    )


def inputs(stage: str) -> dict[str, Any]:
    """What a stage of the run read."""
    if stage.startswith("eval-"):
        return {"checkpoint": stage.removeprefix("eval-"), "shards": "tokenize", "documents": "curate"}
    before = {name: previous for previous, name in pairwise(TRAINED)}
    found: dict[str, dict[str, Any]] = {
        "tokenizer": {"documents": "curate"},
        "tokenize": {"documents": "curate", "tokenizer": "tokenizer"},
        "pretrain": {"tokenizer": "tokenizer", "shards": "tokenize"},
        "extend": {"checkpoint": "pretrain", "tokenizer": "tokenizer", "shards": "tokenize"},
        "distill": {"checkpoint": "rl", "teacher": "sft"},
        "verdict": {"scores": {name: f"eval-{name}" for name in TRAINED}},
    }
    return found.get(stage, {"checkpoint": before[stage]} if stage in before else {})


def write_dump(path: Path, rows: list[dict[str, Any]]) -> None:
    """JSONL with ASCII escapes: the only way in which a lone surrogate can stand in a file."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def write_run(folder: Path, finished: int | None = None) -> Path:
    """Write the run into `folder`. With `finished`, the stage of that index is half written and later ones pend."""
    rng = random.Random(20)
    stages = []
    for index, (name, place) in enumerate(FOLDERS.items()):
        kind = "eval" if name.startswith("eval-") else "pretrain" if name == "extend" else name
        status = "done" if finished is None or index < finished else "running" if index == finished else "pending"
        if finished is None and name in ("curate", "tokenizer"):
            status = "reused"
        if finished is None and name == "verdict":
            status = "failed"  # a claim did not hold
        seconds = SECONDS.get(name, 9.6)
        entry: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "folder": place,
            "inputs": inputs(name),
            "status": status,
            "seconds": seconds if status in ("done", "reused", "failed") else None,
            "summary": {},
            "error": "1 of 4 claims did not hold" if status == "failed" else None,
        }
        if status != "pending":
            entry["summary"] = write_stage(folder / place, name, kind, rng, status=status)
        stages.append(entry)
    write_json(
        folder / "run.json",
        {
            "name": "quickstart <script>alert('name')</script>",
            "seed": 1,
            "recipe": "/somewhere/recipes/quickstart.yaml",
            "ingot": "0.1.0",
            "started": "2026-11-15T08:30:00+00:00",
            "stages": stages,
        },
    )
    return folder


def write_stage(path: Path, name: str, kind: str, rng: random.Random, status: str) -> dict[str, Any]:
    """Write one stage's folder; its summary."""
    summary: dict[str, Any] = {}
    write_text(path / "recipe.yaml", config(name))
    if kind == "curate":
        write_json(path / "documents/funnel.json", funnel())
        write_dump(path / "documents/removed.jsonl", removed(rng))
        write_dump(path / "documents/rewritten.jsonl", rewritten())
        write_dump(path / "documents/problems.jsonl", problems())
        write_json(path / "documents/decontaminate.json", DECONTAMINATION)
        write_json(path / "documents/near_duplicates.json", BANDING)
        for part, rows in enumerate((kept_table().slice(0, 30), kept_table().slice(30))):
            pyarrow.parquet.write_table(rows, path / f"documents/part-{part:05d}.parquet", row_group_size=8)
        summary = {"documents": funnel()[-1]["documents_out"], "bytes": funnel()[-1]["bytes_out"]}
    elif kind == "tokenize":
        write_json(path / "shards/index.json", {})
    elif kind == "tokenizer":
        write_json(path / "tokenizer/statistics.json", STATISTICS)
        summary = {"vocabulary_size": 4096, "bytes_per_token": {"all": 3.4127, "code": 3.02, "prose": 4.0379}}
    elif kind == "eval":
        stage = name.removeprefix("eval-")
        write_json(path / "scores/scores.json", scores(stage))
        write_json(path / "scores/tasks.json", units(stage))
        write_dump(path / "scores/samples.jsonl", samples(stage, rng))
        for step, rows in history().items() if stage == "pretrain" else ():
            write_json(path / f"history/step-{step:07d}/scores.json", rows)
        summary = {metric: score["value"] for metric, score in scores(stage).items()}
    elif kind == "verdict":
        write_json(path / "verdict/verdict.json", {"claims": claims(), "held": 3, "failed": 1})
        summary = {"held": 3, "claims": 4}
    elif name in TRAINED:
        rows = metrics(name, rng)
        write_dump(path / "metrics.jsonl", rows)
        if kind in ("rl", "distill"):
            write_dump(path / "trajectories.jsonl", trajectories(name, rng))
        (path / "checkpoint").mkdir()
        (path / "checkpoint/manifest.json").write_bytes(b"\0" * 2_400_000)
        summary = {
            "steps": rows[-1]["step"],
            "loss": rows[-2]["loss"],
            "parameters": 4_718_592,
            "sources": {"prose": 0.7, "code": 0.3},
        }
    if status in ("done", "reused"):
        write_json(
            path / "DONE",
            {
                "name": name,
                "kind": kind,
                "hash": path.name.rpartition("-")[2],
                "seconds": SECONDS.get(name, 9.6),
                "summary": summary,
                "inputs": {},
                "finished": "2026-11-15T08:40:00+00:00",
                "ingot": "0.1.0",
            },
        )
    elif status == "running":  # a kill tore the last line
        with (path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"step": 999, "loss": 1.')
    return summary


if __name__ == "__main__":
    import sys

    write_run(Path(sys.argv[1]))
