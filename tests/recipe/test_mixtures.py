"""A mixture names sources that exist: else an error when the recipe is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingot.recipe.load import load_recipe
from ingot.workspace.errors import RecipeError

MINI = Path(__file__).parents[2] / "recipes" / "smollm2-135m-mini.yaml"  # tokenize makes prose and code


def phases(**weights: float) -> list[dict[str, object]]:
    return [{"until": 1, "weights": weights}]


def test_sources_and_their_long_documents() -> None:
    """Names that a stage makes are no error, where those of the next test are."""
    load_recipe(MINI, {"extend-256.phases": phases(**{"prose": 1, "code@512+": 2})})
    load_recipe(
        MINI, {"tokenize.sources": {"prose": {}, "code": {}, "poetry": {}}, "pretrain.phases": phases(poetry=1)}
    )


def test_names_that_no_stage_makes() -> None:
    wrong = {"pretrain.phases": phases(poetry=1, code=1), "extend-256.phases": phases(**{"pose@256+": 1, "poetry": 0})}
    with pytest.raises(RecipeError) as caught:
        load_recipe(MINI, wrong)
    lines = [line.strip() for line in str(caught.value).splitlines()]
    named = [line.partition(": ")[2] for line in lines if "makes no source" in line]
    assert named == [
        "pretrain.phases: tokenize makes no source poetry to train on",
        "extend-256.phases: tokenize makes no source pose to train on",
        "extend-256.phases: tokenize makes no source poetry to train on",
    ]
    assert "fix: did you mean prose?" in lines and "fix: sources: prose, code" in lines


def test_validation_is_no_source_to_train_on() -> None:
    with pytest.raises(RecipeError, match="tokenize makes no source validation to train on"):
        load_recipe(MINI, {"pretrain.phases": phases(validation=1)})
