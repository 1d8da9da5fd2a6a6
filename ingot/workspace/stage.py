"""The interface of a stage, and the folder that it works in.

A stage turns input artifacts into output artifacts: `run(config, inputs, folder)`. It reads only `inputs`, writes only
below `folder.path`, and may be killed at any moment: called again with the same arguments it must finish the work. The
recipe room composes stages; a stage knows nothing of recipes. What each kind needs and makes is in recipe/stages.py.

Artifact kinds and where they lie below a stage's folder (a stage that makes kind K writes it to `folder.path / K`):

    documents/    part-*.parquet: id, text, source, and one column per annotation
    tokenizer/    tokenizer.json, chat_template.jinja, checksums.json (of these), statistics.json
    shards/       token shards by source, index.json (see ingot/tokens/shards.py)
    checkpoint/   a complete checkpoint (see ingot/checkpoints/checkpoint.py)
    scores/       scores.json: {metric: {"value", "standard_error", "count"}}; samples.jsonl
    verdict/      verdict.json: which claims of the recipe held
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.workspace.interrupt import StopSignal
from ingot.workspace.metrics import MetricsLog

if TYPE_CHECKING:
    from ingot.workspace.progress import Progress

DONE = "DONE"
WARNING = "warning"  # in a summary: what is wrong with a stage that finished; the last line about it


@dataclass
class StageFolder:
    """The folder that a running stage writes to, and its progress display."""

    path: Path
    seed: int
    progress: Progress
    stop: StopSignal = field(default_factory=StopSignal)
    expected_tokens_per_second: float | None = None  # of a training stage, if it was estimated

    @property
    def metrics(self) -> MetricsLog:
        """The stage's metrics.jsonl."""
        return MetricsLog(self.path / "metrics.jsonl")

    def artifact(self, kind: str) -> Path:
        """The folder of this stage's artifact of `kind`."""
        return self.path / kind


Run = Callable[[Any, Mapping[str, Any], StageFolder], dict[str, Any]]
"""What a stage does with its config, its inputs by role and its folder. The summary that it returns is stored in DONE and shown
in tables: small, JSON-like."""
