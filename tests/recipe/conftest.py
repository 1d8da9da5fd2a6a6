"""Recipes of toy stages, written to a temporary folder that is also the working directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.recipe.load import load_recipe
from ingot.recipe.read import Changes
from ingot.recipe.recipe import Recipe
from ingot.workspace.errors import RecipeError

from . import toy

Write = Callable[..., Path]
Load = Callable[..., Recipe]
Problem = Callable[..., str]


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative paths in messages, and an empty list of calls."""
    monkeypatch.chdir(tmp_path)
    toy.CALLS.clear()


@pytest.fixture
def write() -> Write:
    """Writes a file below the working directory."""

    def write_file(text: str, name: str = "recipe.yaml") -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def load(write: Write) -> Load:
    """A recipe of toy stages from its text."""

    def load_text(text: str, changes: Changes = ()) -> Recipe:
        return load_recipe(write(text), changes, toy.TABLE)

    return load_text


@pytest.fixture
def problem(load: Load) -> Problem:
    """The whole message of the error that a recipe's text gives."""

    def message(text: str, changes: Changes = ()) -> str:
        with pytest.raises(RecipeError) as caught:
            load(text, changes)
        return str(caught.value)

    return message
