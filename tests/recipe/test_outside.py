"""Files that a config names, data and code, are part of the stage's hash: new content under an old path is new work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.data.config import CurateConfig
from ingot.post.sft_config import SftConfig
from ingot.recipe.flow import run_recipe
from ingot.recipe.graph import hash_stages
from ingot.recipe.load import load_recipe
from tests.making.rows import write_rows

from . import toy


def write_recipe(folder: Path) -> Path:
    write_rows(folder / "data.jsonl", [{"text": "one"}])
    recipe = folder / "recipe.yaml"
    source = f"{{files: {json.dumps(str(folder / 'data.jsonl'))}}}"
    recipe.write_text(
        f"name: r\nstages:\n  curate: {{sources: [{source}]}}\n  tokenizer: {{vocabulary_size: 300}}\n",
        encoding="utf-8",
    )
    return recipe


def test_a_changed_data_file_changes_the_hash_of_curate_and_of_what_follows(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path))
    before = hash_stages(recipe)
    assert hash_stages(recipe) == before
    write_rows(tmp_path / "data.jsonl", [{"text": "two"}])
    after = hash_stages(recipe)
    assert after["curate"] != before["curate"]
    assert after["tokenizer"] != before["tokenizer"]


def test_the_same_bytes_written_again_change_nothing(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path))
    before = hash_stages(recipe)
    write_recipe(tmp_path)
    assert hash_stages(recipe) == before


def test_conversation_files_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text("{}\n", encoding="utf-8")
    config = SftConfig(steps=1, sequence_length=8, files=(str(file),))
    before = config.outside()
    file.write_text('{"messages": []}\n', encoding="utf-8")
    assert list(before) == [str(file)]
    assert config.outside() != before


CODE = "def shout(text):\n    return text.upper()\n"


def toy_recipe(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(CODE, encoding="utf-8")
    recipe = folder / "recipe.yaml"
    text = "name: r\nstages:\n  make: {sources: [{files: mine.py:shout}]}\n  train: {}\n"
    recipe.write_text(text, encoding="utf-8")
    return recipe


def test_an_edited_file_of_code_is_work_to_do_again(tmp_path: Path) -> None:
    """Whatever part of a stage's config names it; the same bytes are the same work, in whatever folder they are."""
    path = toy_recipe(tmp_path / "here")
    recipe = load_recipe(path, table=toy.TABLE)
    assert recipe.stages[0].config.work()["sources"][0]["files"] == f"{path.parent}/mine.py:shout"
    first = run_recipe(recipe, tmp_path / "runs", table=toy.TABLE)
    assert [stage.status for stage in first.stages] == ["done", "done"]
    again = run_recipe(load_recipe(path, table=toy.TABLE), tmp_path / "runs", table=toy.TABLE)
    assert [stage.status for stage in again.stages] == ["reused", "reused"]
    moved = load_recipe(toy_recipe(tmp_path / "there"), table=toy.TABLE)
    assert hash_stages(moved, toy.TABLE) == hash_stages(recipe, toy.TABLE)
    (path.parent / "mine.py").write_text(CODE.replace("upper", "lower"), encoding="utf-8")
    edited = run_recipe(load_recipe(path, table=toy.TABLE), tmp_path / "runs", table=toy.TABLE)
    assert [stage.status for stage in edited.stages] == ["done", "done"]


def test_a_file_of_code_is_found_from_the_recipe_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A base recipe's from the base's folder; one on the command line from the working directory."""
    base = toy_recipe(tmp_path / "base")
    over = tmp_path / "over.yaml"
    over.write_text("extends: base/recipe.yaml\nname: o\n", encoding="utf-8")
    work = load_recipe(over, table=toy.TABLE).stages[0].config.work()
    assert work["sources"][0]["files"] == f"{base.parent}/mine.py:shout"
    monkeypatch.chdir(tmp_path)
    work = load_recipe(over, ["make.sources.0.files=x.py:Y"], toy.TABLE).stages[0].config.work()
    assert work["sources"][0]["files"] == f"{tmp_path}/x.py:Y"


def test_the_installed_python_is_known_by_its_versions() -> None:
    found = CurateConfig().outside()
    import platform

    import torch

    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__.split("+")[0] or found["torch"] == torch.__version__
    assert "ingot" not in found
