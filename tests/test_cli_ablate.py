"""`ingot ablate` from the command line: the plan, the table of decisions, and what the exit code says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ingot.cli.app import app
from ingot.workspace.errors import RecipeError

ROOT = Path(__file__).parents[1]
RECIPE = """
name: small
stages:
  curate: { sources: [{ files: texts }], steps: [{ step: exact_dedup }] }
  tokenizer: { vocabulary_size: 272 }
  tokenize: {}
  pretrain:
    device: cpu
    precision: float32
    model: { width: 16, layers: layer, blocks: { layer: { feed_forward: { width: 16 } } } }
    sequence_length: 16
    batch_tokens: 64
    steps: 6
    phases: [{ until: 1, weights: { all: 1 } }]
    validate_every: 2
    validation_rows: 8
"""
FILE = """
baseline: r.yaml
seeds: 2
measure: { stage: pretrain, metric: validation_bits_per_byte, lower_is_better: true }
interventions:
  slow: { set: { pretrain.optimizer.lr: 1e-9 }, predicted: learns nothing }
"""
DEADLINE = 300.0
WORDS = "the quick brown fox jumps over the lazy dog and the quiet cat sleeps in the warm sun\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("r.yaml").write_text(RECIPE)
    Path("a.yaml").write_text(FILE)
    Path("texts").mkdir()
    for number in range(40):
        Path(f"texts/{number}.txt").write_text(f"{number} {WORDS * 3}")


def ingot(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_the_plan_says_what_it_costs_and_writes_nothing() -> None:
    for option in ("--plan", "--dry-run"):
        shown = ingot("ablate", "a.yaml", option)
        assert shown.exit_code == 0
        assert "to do: 6 of 6 runs" in shown.stdout and "FLOPs" in shown.stdout
        assert "once for all: curate, tokenizer, tokenize" in shown.stdout
    for budget in ("flops", "hours"):
        shown = ingot("ablate", "a.yaml", "--plan", f"--budget-{budget}", "1e-6")
        assert "this is more than the budget of " in shown.stdout, budget
    assert not Path("runs").exists()
    plan = json.loads(ingot("ablate", "a.yaml", "--plan", "--json").stdout)
    assert [row["arm"] for row in plan["arms"]] == ["baseline", "slow", "baseline-x0.5"]
    assert plan["arms"][2]["flops"] == plan["arms"][0]["flops"] // 2 and plan["to_do"] == 6


def test_a_stage_that_is_misspelt_is_named_as_the_file_has_it() -> None:
    Path("a.yaml").write_text(FILE.replace("stage: pretrain", "stage: pretrian"))
    with pytest.raises(
        RecipeError, match=r"^metric .*@pretrian: no stage is named pretrian\n  fix: did you mean pretrain"
    ):
        ingot("ablate", "a.yaml", "--plan")


def test_a_real_ablation_ends_with_decisions_and_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # the verdict must stand in a small terminal, too
    budget = json.loads(ingot("ablate", "a.yaml", "--plan", "--json").stdout)["arms"][0]["flops"]
    some = ingot("ablate", "a.yaml", "--jobs", "2", "--budget-flops", str(2.6 * budget))
    assert some.exit_code == 0, some.output
    assert some.stdout.count("not run: ") == 3 and "3 runs are left" in some.stdout
    done = ingot("ablate", "a.yaml", "--jobs", "2")
    assert done.exit_code == 0, done.output
    assert "p-values by Holm's method over 1 difference," in done.stdout
    folder = Path("runs/small/ablations/a")
    found = json.loads((folder / "ablation.json").read_text())
    [_, slow] = found["arms"]
    assert slow["differences"][0]["gain"] < 0 and slow["parameters"] == found["arms"][0]["parameters"]
    gain = f"{slow['differences'][0]['gain']:+.2%}"
    [row] = [line for line in done.stdout.splitlines() if line.startswith("slow ") and gain in line]
    assert row.rstrip().endswith(slow["verdict"])
    assert slow["predicted"][0]["text"] == "learns nothing" and not slow["predicted"][0]["late"]
    assert all((folder / run["report"]).exists() for run in found["runs"])
    assert found["complete"] and found["spent"]["flops"] > 0
    again = json.loads(ingot("ablate", "a.yaml", "--json").stdout)
    assert [arm["means"] for arm in again["arms"]] == [arm["means"] for arm in found["arms"]]


@pytest.mark.slow
def test_a_run_that_fails_is_named_and_the_exit_code_says_so() -> None:
    Path("a.yaml").write_text(FILE.replace("lr: 1e-9", "lr: 1e9") + "curve: []\n")
    done = ingot("ablate", "a.yaml")
    assert done.exit_code == 1
    assert "failed: slow,seed=1" in done.output and "tries it again" in done.output


@pytest.mark.slow
def test_a_real_ablation_that_is_killed_in_the_middle_loses_no_finished_run() -> None:
    lab = subprocess.Popen(
        [sys.executable, "-m", "ingot", "ablate", "a.yaml", "--jobs", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def finished() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in Path("runs/small").glob("pretrain-*/DONE")}

    until = time.monotonic() + DEADLINE
    while len(finished()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(lab.pid, signal.SIGKILL)
    lab.wait(DEADLINE)
    before = finished()
    assert 2 <= len(before) < 6
    done = ingot("ablate", "a.yaml", "--jobs", "2")
    assert done.exit_code == 0, done.output
    after = finished()
    assert len(after) == 6
    assert {path: after[path] for path in before} == before  # none was written again
    logs = [
        path.read_text().count("parameters on cpu") for path in Path("runs/small/ablations/a").glob("*,seed=*/log.txt")
    ]
    assert len(logs) == 6 and sum(logs) <= 8  # at most the two that were running began again
