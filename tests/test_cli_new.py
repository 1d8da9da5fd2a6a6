"""`ingot new`: the project runs as it is, and what is there already stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow.parquet import read_table

from ingot.cli.new import TEMPLATE, write_project
from ingot.evals.scores.scores import load_scores
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import RecipeError

SHORT = [
    "curate.max_bytes=300000",
    "pretrain.steps=3",
    "sft.steps=3",
    "sft.task_conversations=24",
    "verdict=null",
    "curate.workers=1",
]


def test_the_project_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = write_project(Path("mine"))
    assert {str(path) for path in written} == {
        f"mine/{name}" for name in ("README.md", "conversations.jsonl", "data/welcome.md", "larger.py", "recipe.yaml")
    }
    assert "PROJECT" not in "".join(path.read_text(encoding="utf-8") for path in written)
    monkeypatch.chdir("mine")
    result = run_recipe(load_recipe(Path("recipe.yaml"), SHORT), Path("runs"))
    assert [stage.status for stage in result.stages] == ["done"] * 7
    table = read_table(sorted((result.stages[0].folder / "documents").glob("*.parquet")), columns=["source"])
    assert {"mine", "python-text"} <= set(table["source"].to_pylist())  # the texts of data/, and the installed ones
    assert load_scores(result.stages[-1].folder)["accuracy/larger"].estimate.count == 100


@pytest.mark.slow
def test_its_claims_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    result = run_recipe(load_recipe(Path("recipe.yaml")), Path("runs"))
    assert [stage.status for stage in result.stages] == ["done"] * 8


@pytest.mark.parametrize(("name", "said"), [("taken", "is there already"), ("my project", "cannot be a recipe's name")])
def test_what_is_there_stays(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(RecipeError, match=said):
        write_project(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["taken", "notes.txt"]


def test_the_files_are_in_the_package() -> None:
    """What a wheel holds is listed in pyproject.toml by suffix."""
    listed = (TEMPLATE.parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'"**/*{path.suffix}"' in listed for path in TEMPLATE.rglob("*.[jmy]*") if path.suffix != ".py")
