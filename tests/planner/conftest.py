"""Recipes of toy stages, as in the tests of recipe/."""

from __future__ import annotations

from tests.recipe.conftest import clean, load, problem, write  # noqa: F401
