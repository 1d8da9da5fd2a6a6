"""Recipes with a mistake in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.recipe.load import load_recipe
from ingot.workspace.errors import RecipeError


def assert_refused(recipe: Path, old: str, new: str, said: str) -> None:
    """Write `new` for `old` in a recipe: its error names its file and says this, where RECIPE is the recipe's folder."""
    text = recipe.read_text(encoding="utf-8")
    assert old in text
    recipe.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe)
    assert said.replace("RECIPE", str(recipe.parent)) in str(caught.value) and f"{recipe}:" in str(caught.value)
