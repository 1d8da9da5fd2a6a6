"""A merge method of my own, as docs/guides/small-parts.md shows it, on the command line and in a recipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from ingot.checkpoints.checkpoint import load_model, save_checkpoint
from ingot.cli.app import app
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from ingot.workspace.errors import CheckFailed
from tests.making.recipes import assert_refused
from tests.model.tiny import config, random_model

PAGE = Path(__file__).parents[2] / "docs/guides/small-parts.md"
RECIPE = """
name: mine
stages:
  soup: {stage: merge, method: median.py:median, inputs: {checkpoints: {a: FOLDER/0, b: FOLDER/1, c: FOLDER/2}}}
"""
OTHER = """
def scaled(tensors, weights, base):
    return sum(weight * tensor for weight, tensor in zip(weights, tensors)) + base


def flat(tensors, weights, base):
    return tensors[0].flatten()[:1]
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Three models, a recipe that merges them, and the files of the method."""
    for seed in range(3):
        save_checkpoint(tmp_path / str(seed), random_model(config(), seed))
    shown = re.search(r"```python\n# median\.py\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert shown is not None
    (tmp_path / "median.py").write_text(shown[1], encoding="utf-8")
    (tmp_path / "other.py").write_text(OTHER, encoding="utf-8")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("FOLDER", str(tmp_path)), encoding="utf-8")
    return path


def test_a_stage_and_the_command_take_the_median_of_each_weight(recipe: Path, tmp_path: Path) -> None:
    folder, runs = recipe.parent, recipe.parent / "runs"
    stage = run_recipe(load_recipe(recipe), runs).stages[0].folder
    models = [str(folder / str(seed)) for seed in range(3)]
    command = ["merge", *models, "--method", f"{folder}/median.py:median", "--to", str(tmp_path / "by_command")]
    assert CliRunner().invoke(app, command).exit_code == 0
    states = [load_model(Path(each)).state_dict() for each in models]
    for path in (stage / "checkpoint", tmp_path / "by_command"):
        for name, value in load_model(path).state_dict().items():
            middle = torch.sort(torch.stack([state[name] for state in states]), dim=0).values[1]
            assert torch.equal(value, middle), name
    with (folder / "median.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["to do"]


def test_it_is_given_weights_and_a_base(recipe: Path) -> None:
    folder = recipe.parent
    changes = {"soup.method": f"{folder}/other.py:scaled", "soup.weights": [2.0, -0.5], "soup.base": "c"}
    merged = run_recipe(load_recipe(recipe, changes), folder / "runs").stages[0].folder / "checkpoint"
    a, b, c = (load_model(folder / str(seed)).state_dict() for seed in range(3))
    for name, value in load_model(merged).state_dict().items():
        torch.testing.assert_close(value, 2 * a[name] - 0.5 * b[name] + c[name])
    with pytest.raises(CheckFailed, match=r"other.py:flat: it made shape \(1,\) of tensors of shape"):
        run_recipe(load_recipe(recipe, {"soup.method": f"{folder}/other.py:flat"}), folder / "runs")


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("median.py:medan", "median.py has no medan\n  fix: did you mean median?"),
        ("slrp", "soup.method: there is no merge method slrp\n  fix: did you mean slerp?"),
        ("average_of_all", "soup.method: there is no merge method average_of_all\n  fix: write file.py:function"),
        ("pathlib:Path", "is not a function, which a merge method is"),
        ("median.py:median, density: 0.4", "density: "),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, new: str, said: str) -> None:
    assert_refused(recipe, "median.py:median", new, said)
