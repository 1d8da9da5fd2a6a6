"""One kind of stage by itself, from a recipe or from a plain file of options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.recipe.flow import run_recipe
from ingot.recipe.recipe import FromPath, FromStage, Recipe
from ingot.recipe.single import load_stage
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.files import read_json

from . import toy
from .conftest import Write

RECIPE = "name: small\nstages:\n  make:\n  train:\n  second: {stage: train}\n  score: {after: each}\n"


def single(path: Path, kind: str, *changes: str, **options: Any) -> tuple[Recipe, frozenset[str]]:
    return load_stage(path, kind, changes, table=toy.TABLE, **options)


def test_from_a_recipe(write: Write) -> None:
    path = write(RECIPE)
    recipe, names = single(path, "train", seed=8)
    assert (set(names), recipe.seed) == ({"train", "second"}, 8)
    with pytest.raises(ArtifactError, match="train needs the result of make, which is not finished"):
        run_recipe(recipe, only=names, table=toy.TABLE)
    run_recipe(single(path, "make", seed=8)[0], only={"make"}, table=toy.TABLE)
    run_recipe(recipe, only=names, table=toy.TABLE)
    assert toy.CALLS == ["make@0", "train@0", "second@0"]
    assert single(path, "score")[1] == {"score-train", "score-second"}


def test_inputs_of_a_recipe_can_be_replaced(write: Write) -> None:
    write("[]", "elsewhere/documents/content.json")
    recipe, _ = single(write(RECIPE), "train", inputs={"documents": "elsewhere"})
    elsewhere = FromPath(Path("elsewhere/documents"), "documents")
    assert recipe.stage("train").inputs == {"documents": elsewhere}
    assert recipe.stage("second").inputs == {"documents": elsewhere, "checkpoint": FromStage("train", "checkpoint")}


def test_from_plain_options(write: Write) -> None:
    write("[]", "elsewhere/documents/content.json")
    path = write("steps: 2\noptimizer: {learning_rate: 3e-4}\n", "tune.yaml")
    recipe, names = single(path, "train", "optimizer.betas=[0.5, 0.6]", inputs={"documents": "elsewhere"}, seed=4)
    assert (recipe.name, recipe.seed, set(names)) == ("tune", 4, {"train"})
    assert recipe.stages[0].config == toy.TrainConfig(
        steps=2, optimizer=toy.ToyOptimizer(learning_rate=3e-4, betas=(0.5, 0.6))
    )
    result = run_recipe(recipe, only=names, table=toy.TABLE)
    assert result.stages[0].status == "done"
    assert read_json(result.folder / "run.json")["stages"][0]["inputs"] == {"documents": "elsewhere/documents"}


@pytest.mark.parametrize("change", ["steps=3", "train.steps=3"])
@pytest.mark.parametrize("above", ["", "train:\n  ", "name: tune\nseed: 0\ntrain:\n  "])
def test_options_may_stand_below_their_kind(write: Write, above: str, change: str) -> None:
    """As in a recipe, without its `stages:`; then changes are written as a recipe's, else either way."""
    write("[]", "elsewhere/documents/content.json")
    path = write(f"{above}optimizer: {{learning_rate: 3e-4}}\n", "tune.yaml")
    if above and change == "steps=3":
        with pytest.raises(RecipeError, match="no stage is named steps"):
            single(path, "train", change, inputs={"documents": "elsewhere"})
        change = "train.steps=3"
    recipe, names = single(path, "train", change, inputs={"documents": "elsewhere"}, seed=4)
    assert (recipe.name, recipe.seed, set(names)) == ("tune", 4, {"train"})
    assert recipe.stages[0].config == toy.TrainConfig(steps=3, optimizer=toy.ToyOptimizer(learning_rate=3e-4))


def test_stages_without_their_first_line_are_a_recipe(write: Write) -> None:
    path = write("name: small\nmake:\ntrain: {steps: 2}\n")
    recipe, names = single(path, "train")
    assert ([stage.name for stage in recipe.stages], set(names)) == (["make", "train"], {"train"})
    with pytest.raises(RecipeError, match=r"the recipe has no judge stage\n  fix: it has: make, train"):
        single(path, "judge")


def test_options_in_two_places(write: Write) -> None:
    with pytest.raises(RecipeError) as caught:
        single(write("train:\n  steps: 2\noptimizer: {}\n", "tune.yaml"), "train")
    assert str(caught.value) == (
        "tune.yaml:3: optimizer stands beside `train:`, which holds the options of the stage\n"
        "  fix: put optimizer below `train:`, or take that line away"
    )


def test_the_recipe_in_a_stage_folder_can_be_run_again(write: Write) -> None:
    result = run_recipe(single(write(RECIPE), "train")[0], table=toy.TABLE)
    second = result.stages[3]
    assert second.name == "second"
    recipe, names = single(second.folder / "recipe.yaml", "train")
    assert (recipe.name, set(names)) == ("small-second", {"train"})
    again = run_recipe(recipe, only=names, table=toy.TABLE)
    copies = [folder / "checkpoint" / "content.json" for folder in (second.folder, again.stages[0].folder)]
    assert read_json(copies[0]) == read_json(copies[1])


def test_problems(write: Write) -> None:
    path = write("steps: 2\n", "tune.yaml")
    with pytest.raises(RecipeError) as caught:
        single(path, "train")
    assert str(caught.value) == (
        "tune.yaml:1: train needs documents, which no earlier stage makes\n"
        "  fix: add a stage that makes documents before it, or write inputs: {documents: PATH}"
    )
    with pytest.raises(RecipeError) as caught:
        single(path, "train", inputs={"documents": "nowhere"})
    assert str(caught.value) == (
        "--input documents=nowhere: train.inputs.documents: nowhere is neither an earlier stage nor an existing path\n"
        "  fix: give the path of its documents"
    )
    with pytest.raises(RecipeError) as caught:
        single(write("stage: make\n", "make.yaml"), "train")
    assert str(caught.value) == (
        "make.yaml:1: these are the options of a make stage, not train\n  fix: run `ingot make` with this file"
    )
    with pytest.raises(RecipeError) as caught:
        single(write(RECIPE), "judge")
    assert str(caught.value) == "recipe.yaml: the recipe has no judge stage\n  fix: it has: make, score, train"


def test_data_where_options_belong(tmp_path: Path) -> None:
    """What a newcomer types first."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"messages": []}\n{"messages": []}\n')
    for path, kind, told in (
        (rows, "sft", f"files: [{rows}]"),
        (tmp_path, "curate", f"sources: [{{files: {tmp_path}}}]"),
    ):
        with pytest.raises(RecipeError) as caught:
            load_stage(path, kind)
        assert str(caught.value) == (
            f"{path}: this is data, and a recipe or a YAML file of options is wanted\n"
            f"  fix: write a file with the stage's options, such as {told}, then: ingot {kind} FILE.yaml"
        )
