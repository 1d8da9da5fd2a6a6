"""The trials of a sweep: which values, which seeds, which stages."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ingot.lab.grid import Axis, Trial, make_trials, reached_stages, read_axes, read_seeds, seeded_stages, short_names
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import RecipeError
from tests.recipe import toy

TEXT = """
name: small
stages:
  make: {}
  train: {}
  second: {stage: train}
  score: {after: each}
"""


def test_values_are_split_at_commas_outside_brackets_and_quotes() -> None:
    axes, fixed = read_axes(
        ["a.lr=1e-4, 3e-4", "a.list=[1,2],[3]", "a.text='x,y',z", "a.steps=100", "a.pair={b: 1, c: 2}"]
    )
    assert axes == [Axis("a.lr", (1e-4, 3e-4)), Axis("a.list", ([1, 2], [3])), Axis("a.text", ("x,y", "z"))]
    assert fixed == ["a.steps=100", "a.pair={b: 1, c: 2}"]
    assert [axis.numeric for axis in axes] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("seed=1,2", "--seeds 1,2,3"),
        ("name=a,b", "name cannot be swept"),
        ("a.b=1,1", "a value is given twice"),
        ("a.b=1,[", "not valid YAML"),
    ],
)
def test_bad_axes(text: str, problem: str) -> None:
    with pytest.raises(RecipeError, match="--set") as caught:
        read_axes([text])
    assert problem in str(caught.value)


def test_an_option_is_swept_once() -> None:
    with pytest.raises(RecipeError, match=r"a\.b is swept twice"):
        read_axes(["a.b=1,2", "a.b=3,4"])


@pytest.mark.parametrize("text", ["1,x", "1,1", "", "-1"])
def test_bad_seeds(text: str) -> None:
    with pytest.raises(RecipeError, match="--seeds"):
        read_seeds(text)


def test_trials_are_the_product_and_one_seed_comes_before_the_next() -> None:
    axes = [Axis("a.x", (1, 2)), Axis("b.y", ("p", "q", "r"))]
    trials = make_trials(axes, (7, 8))
    assert [(trial.seed, *(value for _, value in trial.values)) for trial in trials] == [
        (seed, x, y) for seed in (7, 8) for x, y in itertools.product((1, 2), "pqr")
    ]
    assert trials[0].changes() == ["a.x=1", "b.y=p"]


def test_changes_are_read_back_as_the_values_they_came_from() -> None:
    values = (1e-5, True, None, "null", "3", "a b", "x,y", [1, 2], {"k": "v"}, "word", "file.py:Name")
    for value in values:
        [change] = Trial((("a.b", value),)).changes()
        axes, _ = read_axes([f"{change},other"])
        assert axes[0].values[0] == value and type(axes[0].values[0]) is type(value)


def test_folders_are_names_of_files_and_differ() -> None:
    names = [Trial((("a.b", value),), 1).folder for value in ("x/y", "x y", "x" * 200, "x" * 201, 0.1)]
    assert len(set(names)) == len(names)
    assert names[-1] == "b=0.1,seed=1"
    assert all("/" not in name and len(name) < 150 for name in names)


def test_names_are_as_short_as_they_can_be() -> None:
    assert short_names(["sft.optimizer.lr", "sft.steps"]) == {"sft.optimizer.lr": "lr", "sft.steps": "steps"}
    assert list(short_names(["a.o.lr", "b.o.lr"]).values()) == ["a.o.lr", "b.o.lr"]


def test_what_an_option_reaches(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(TEXT)
    recipe = load_recipe(path, (), toy.TABLE)
    names = [stage.name for stage in recipe.stages]
    assert names == ["make", "train", "score-train", "second", "score-second"]
    assert reached_stages(recipe, [Axis("second.steps", (1, 2))]) == ["second", "score-second"]
    assert reached_stages(recipe, [Axis("train.steps", (1, 2))]) == names[1:]
    assert reached_stages(recipe, [Axis("score.count", (1, 2))]) == ["score-train", "score-second"]
    assert reached_stages(recipe, []) == names
    assert seeded_stages(recipe, [Axis("make.text", ("a", "b"))], names, toy.TABLE) == ["train", "second"]
    assert seeded_stages(recipe, [Axis("train.steps", (1, 2))], ["make", "train"], toy.TABLE) == ["train"]
    with pytest.raises(RecipeError, match="seeds would change nothing"):
        seeded_stages(recipe, [Axis("score.count", (1, 2))], names, toy.TABLE)
