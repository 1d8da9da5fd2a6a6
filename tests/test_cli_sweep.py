"""`ingot sweep` from the command line: the plan, the table, the page, and a trial that fails."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ingot.cli.app import app

RECIPE = """
name: small
stages:
  curate:
    sources: [{ files: texts }]
    steps: [{ step: exact_dedup }]
  tokenizer: { vocabulary_size: 272 }
"""
WORDS = "the quick brown fox jumps over the lazy dog and the quiet cat sleeps in the warm sun\n"
SWEEP = ["sweep", "recipe.yaml", "--set", "tokenizer.vocabulary_size=272,274,280", "--best", "max"]
METRIC = ["--metric", "vocabulary_size@tokenizer"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    Path("recipe.yaml").write_text(RECIPE)
    Path("texts").mkdir()
    for number in range(30):
        Path(f"texts/{number}.txt").write_text(f"{number} {WORDS * 2}")
    return tmp_path


def ingot(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_the_plan_says_what_is_left_and_writes_nothing() -> None:
    shown = ingot(*SWEEP, *METRIC, "--dry-run")
    assert shown.exit_code == 0
    assert "vocabulary_size=274  to do: curate, tokenizer" in shown.stdout
    assert "3 trials, 4 different stages, 4 to do" in shown.stdout  # curation is shared
    assert not Path("runs").exists()


def test_a_sweep_prints_a_table_and_writes_a_page() -> None:
    done = ingot(*SWEEP, *METRIC)
    assert done.exit_code == 0, done.output
    rows = [
        line.split()
        for line in done.stdout.splitlines()
        if line.strip().startswith("27") or line.strip().startswith("280")
    ]
    assert [row[0] for row in rows] == ["280", "274", "272"]
    assert [row[1] for row in rows] == ["280", "274", "272"]
    assert "best: vocabulary_size=280, 280" in done.stdout
    assert "standard errors are not known" in done.stdout
    assert (
        "the best tokenizer.vocabulary_size is the largest that was tried: widen the range, as with 286" in done.stdout
    )
    assert "ingot run recipe.yaml --set tokenizer.vocabulary_size=280" in done.stdout
    folder = Path("runs/small/sweeps/tokenizer.vocabulary_size")
    assert {path.name for path in folder.glob("sweep.*")} == {"sweep.html", "sweep.csv", "sweep.json"}
    assert all(
        (folder / row["folder"] / "report.html").exists() for row in csv.DictReader((folder / "sweep.csv").open())
    )
    assert "3 trials, 4 different stages, 0 to do" in ingot(*SWEEP, *METRIC, "--dry-run").stdout
    again = json.loads(ingot(*SWEEP, *METRIC, "--json").stdout)
    assert [setting["value"] for setting in again["settings"]] == [280, 274, 272]


def test_trials_that_fail_are_named_and_the_exit_code_says_so() -> None:
    for path in list(Path("texts").iterdir())[1:]:
        path.unlink()  # one document is too few for a tokenizer
    done = ingot(*SWEEP, *METRIC)
    assert done.exit_code == 1
    assert "nothing was measured" in done.stdout
    assert done.output.count("cannot train on some and validate on others") >= 3


def test_a_bad_value_is_an_error_before_anything_runs() -> None:
    with pytest.raises(Exception, match=r"tokenizer\.vocabulary_size"):
        ingot("sweep", "recipe.yaml", "--set", "tokenizer.vocabulary_size=272,many", *METRIC)
    with pytest.raises(Exception, match="write one of auto, max, min"):
        ingot("sweep", "recipe.yaml", "--best", "most", *METRIC)
    assert not Path("runs").exists()
