"""Files that a config names are part of the stage's hash: new content under an old path is new work."""

from __future__ import annotations

import json
from pathlib import Path

from ingot.data.config import CurateConfig
from ingot.post.config import SftConfig
from ingot.recipe.graph import hash_stages
from ingot.recipe.load import load_recipe


def write_recipe(folder: Path) -> Path:
    (folder / "data.jsonl").write_text(json.dumps({"text": "one"}) + "\n", encoding="utf-8")
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
    (tmp_path / "data.jsonl").write_text(json.dumps({"text": "two"}) + "\n", encoding="utf-8")
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


def test_the_installed_python_is_known_by_its_versions() -> None:
    found = CurateConfig().outside()
    import platform

    import torch

    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__.split("+")[0] or found["torch"] == torch.__version__
    assert "ingot" not in found
