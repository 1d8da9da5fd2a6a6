"""The plan before a run: what is found, which columns go where, and estimates that are sums of one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingot.cli.app import app
from ingot.data import plan
from ingot.data.config import CurateConfig
from ingot.data.outside import STEPS

from .dirty import article


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    text = "".join(json.dumps({"text": article(number)}) + "\n" for number in range(50))
    (tmp_path / "rows.jsonl").write_text(text)
    return tmp_path / "rows.jsonl"


def config_for(rows: Path, **changes: Any) -> CurateConfig:
    sources: list[Any] = [{"files": str(rows)}]
    steps: list[Any] = [{"step": "split"}, {"step": "near_dedup"}]
    return CurateConfig(**{"sources": sources, "steps": steps, **changes})


def test_times_are_bytes_over_rates_and_workers(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "READ_RATE", 0.001)
    monkeypatch.setattr(STEPS.find("split"), "rate", 0.002)
    monkeypatch.setattr(STEPS.find("near_dedup"), "rate", None)
    made = plan.make_plan(config_for(rows, workers=4))
    megabytes = rows.stat().st_size / 1e6
    assert made.bytes == rows.stat().st_size
    assert made.seconds == pytest.approx((megabytes / 0.001 + megabytes / 0.002) / 4, rel=0.01)
    assert [step.seconds is None for step in made.steps] == [False, False, True]
    assert "without near_dedup" in made.lines()[-1]


def test_every_step_that_can_be_written_has_a_rate_or_says_so() -> None:
    rates = {name: step.rate for name, step in STEPS.builtin().items()}
    assert all(rates[name] for name in ("gopher_quality", "near_dedup", "exact_dedup", "language"))
    assert all(rate is None or rate > 0 for rate in rates.values())


def test_the_command_shows_the_plan_and_writes_nothing(rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"sources: [{{files: {rows}}}]\nsteps: [{{step: split}}, {{step: near_dedup}}]\n")
    before = sorted(tmp_path.rglob("*"))
    result = CliRunner().invoke(
        app, ["curate", str(file), "--dry-run", "--workers", "3", "--runs", str(tmp_path / "r")]
    )
    assert result.exit_code == 0, result.output
    assert "1 of 1" in result.output
    assert "14 bands x 8 rows" in result.output  # the S-curve
    assert "text, kind -> kind" in result.output
    assert "on 3 workers (local)" in result.output
    assert sorted(tmp_path.rglob("*")) == before
    shown = CliRunner().invoke(app, ["curate", str(file), "--dry-run", "--json"])
    assert json.loads(shown.output)[0]["sources"][0]["files"] == 1


def test_the_command_runs_and_options_of_how_do_not_change_the_work(rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"sources: [{{files: {rows}}}]\nsteps: [{{step: split}}]\n")
    for workers, status in (("1", "done"), ("2", "reused")):
        options = ["curate", str(file), "--workers", workers, "--runs", str(tmp_path / "runs"), "--json"]
        result = CliRunner().invoke(app, options)
        assert result.exit_code == 0, result.output
        [stage] = json.loads(result.output)["stages"]
        assert (stage["status"], stage["summary"]["documents"]) == (status, 50)
