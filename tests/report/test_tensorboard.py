"""The exported event files, read back with TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ingot.report.tensorboard import export_tensorboard
from tests.making.rows import write_rows


def test_every_metric_of_every_stage_is_exported(tmp_path: Path) -> None:
    stage = tmp_path / "run" / "sft-0123456789ab"
    stage.mkdir(parents=True)
    rows = [{"step": step, "loss": 3.0 - 0.5 * step, "tokens_per_second": 100.0 + step} for step in range(4)]
    write_rows(stage / "metrics.jsonl", rows)
    out = export_tensorboard(tmp_path / "run", tmp_path / "events")
    events = EventAccumulator(str(out / "sft"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["loss", "tokens_per_second"]
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [
        (row["step"], pytest.approx(row["loss"])) for row in rows
    ]
