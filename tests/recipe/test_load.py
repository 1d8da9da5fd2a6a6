"""What a recipe means: kinds, order, inheritance, expansion, changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ingot.recipe.load import load_recipe
from ingot.recipe.problems import Problems
from ingot.recipe.recipe import FromPath, FromStage, Recipe
from ingot.recipe.tree import parse_yaml
from ingot.workspace.errors import RecipeError

from . import toy
from .conftest import Load, Write


def names(recipe: Recipe) -> list[str]:
    return [stage.name for stage in recipe.stages]


def train_config(recipe: Recipe, name: str = "train") -> toy.TrainConfig:
    config = recipe.stage(name).config
    assert isinstance(config, toy.TrainConfig)
    return config


def test_a_whole_recipe(load: Load) -> None:
    recipe = load("""
name: small
seed: 7
stages:
  make: {text: hello, sources: [{files: "*.txt", weight: 2}]}
  train:
    steps: 1_000
    optimizer: {learning_rate: 3e-4, betas: [0.9, 0.99]}
  extend:
    stage: train
    seed: 9
    precision: float32
""")
    assert (recipe.name, recipe.seed, names(recipe)) == ("small", 7, ["make", "train", "extend"])
    assert [stage.kind for stage in recipe.stages] == ["make", "train", "train"]
    assert [stage.seed for stage in recipe.stages] == [7, 7, 9]
    config = train_config(recipe)
    assert (config.steps, config.optimizer.learning_rate, config.optimizer.betas) == (1000, 3e-4, (0.9, 0.99))
    assert recipe.stage("train").inputs == {"documents": FromStage("make", "documents")}
    assert recipe.stage("extend").inputs == {
        "documents": FromStage("make", "documents"),
        "checkpoint": FromStage("train", "checkpoint"),
    }


def test_defaults(load: Load) -> None:
    recipe = load("stages:\n  make:\n")
    assert (recipe.name, recipe.seed) == ("recipe", 1)
    assert recipe.stages[0].config == toy.MakeConfig()


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {p: 1, q: {r: 2}}\nb: {<<: *x, q: 3}\n",  # what is written out stands above, whole
        "a: &x {p: 1}\nb: {p: 2, <<: *x}\n",  # wherever it is written
        "a: &x {p: 1}\nb: &y {p: 2, q: 2}\nc: {<<: [*x, *y], s: 3}\n",  # the first that has it
        "a: &x {p: 1}\nb: &y {<<: *x, q: 2}\nc: {<<: *y}\n",  # of one that is merged itself
        "a: {<<: {p: 1}, <<: [], '<<': 2}\n",
    ],
)
def test_merge_keys_are_those_of_yaml_one_one(text: str) -> None:
    problems = Problems()
    found = parse_yaml(text, "file", problems).plain()
    assert not problems.found
    assert found == yaml.safe_load(text)


def test_a_stage_that_begins_like_another(load: Load) -> None:
    recipe = load("""
stages:
  make:
  train: &usual {steps: 5, precision: float32, optimizer: {learning_rate: 1e-2}}
  second:
    <<: *usual
    stage: train
    steps: 7
""")
    first, second = (train_config(recipe, name) for name in ("train", "second"))
    assert (first.steps, second.steps) == (5, 7)
    assert (second.precision, second.optimizer) == ("float32", first.optimizer)


def test_yaml_one_two_scalars(load: Load) -> None:
    for written, meant in [("on", "on"), ("no", "no"), ("12:30", "12:30"), ("2024-01-01", "2024-01-01"), ("'1'", "1")]:
        config = load(f"stages:\n  make: {{text: {written}}}\n").stages[0].config
        assert isinstance(config, toy.MakeConfig)
        assert config.text == meant
    for written, number in [
        ("3e-4", 3e-4),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("010", 10.0),
        ("+2.5e+1", 25.0),
    ]:
        recipe = load(f"stages:\n  make:\n  train: {{optimizer: {{learning_rate: {written}}}}}\n")
        assert train_config(recipe).optimizer.learning_rate == number


def test_optional_input_can_be_left_empty(load: Load) -> None:
    recipe = load("stages:\n  make:\n  a: {stage: train}\n  b: {stage: train, inputs: {checkpoint: null}}\n")
    assert "checkpoint" not in recipe.stage("b").inputs


def test_an_optional_role_of_another_name_is_empty_unless_it_is_named(load: Load) -> None:
    recipe = load("stages:\n  make:\n  train:\n  a: {stage: listen}\n  b: {stage: listen, inputs: {teacher: train}}\n")
    assert recipe.stage("a").inputs.keys() == {"checkpoint"}
    assert recipe.stage("b").inputs["teacher"] == FromStage("train", "checkpoint")


def test_inputs_by_path(load: Load, write: Write) -> None:
    write("[]", "old/train-abc/checkpoint/content.json")
    write("{}", "old/train-abc/DONE")
    by_folder = load("stages:\n  score: {inputs: {checkpoint: old/train-abc}}\n")
    by_artifact = load("stages:\n  score: {inputs: {checkpoint: old/train-abc/checkpoint}}\n")
    expected = {"checkpoint": FromPath(Path("old/train-abc/checkpoint"), "checkpoint")}
    assert by_folder.stages[0].inputs == by_artifact.stages[0].inputs == expected


EXPANDED = """
stages:
  make:
  train:
  second: {stage: train}
  third: {stage: teach, inputs: {teacher: train}}
  score: {after: each, count: 5}
  judge: {claims: [better]}
"""


def test_after_each(load: Load) -> None:
    recipe = load(EXPANDED)
    expected = ["make", "train", "score-train", "second", "score-second", "third", "score-third", "judge"]
    assert names(recipe) == expected
    assert recipe.stage("score-second").inputs == {"checkpoint": FromStage("second", "checkpoint")}
    assert {stage.written_as for stage in recipe.stages if stage.kind == "score"} == {"score"}
    assert recipe.stage("judge").inputs == {
        "scores": {name: FromStage(f"score-{name}", "scores") for name in ("train", "second", "third")}
    }
    assert (recipe.index("score"), recipe.index("score", last=True)) == (2, 6)


def test_after_a_list_and_two_kinds_of_scores(load: Load) -> None:
    changes = ["score.after=[second, train]"]
    assert [name for name in names(load(EXPANDED, changes)) if "score" in name] == ["score-train", "score-second"]
    text = EXPANDED.replace("  judge", "  quick: {stage: score, after: each}\n  judge")
    recipe = load(text)
    assert names(recipe)[1:4] == ["train", "score-train", "quick-train"]
    scores = recipe.stage("judge").inputs["scores"]
    assert isinstance(scores, dict)
    assert list(scores) == [stage.name for stage in recipe.stages if stage.kind == "score"]  # not unique by subject


def test_many_inputs_by_name(load: Load) -> None:
    listed = load(EXPANDED, ["judge.inputs={scores: [score-train, score-third]}"])
    assert listed.stage("judge").inputs["scores"] == {
        "train": FromStage("score-train", "scores"),
        "third": FromStage("score-third", "scores"),
    }
    mapped = load(EXPANDED, ["judge.inputs.scores={base: score-train}"])
    assert mapped.stage("judge").inputs["scores"] == {"base": FromStage("score-train", "scores")}
    assert load(EXPANDED, ["judge.inputs.scores=score"]).stage("judge").inputs == load(EXPANDED).stage("judge").inputs


def test_extends_merges_deeply(load: Load, write: Write) -> None:
    write(
        """
name: base
seed: 3
stages:
  make: {text: a, sources: [{files: x}, {files: y}]}
  train: {steps: 5, optimizer: {learning_rate: 0.5, betas: [0.1, 0.2]}}
  score: {after: each}
  judge: {claims: [a]}
""",
        "bases/base.yaml",
    )
    write("extends: base.yaml\nname: middle\nstages:\n  train: {pause: 0.25}\n", "bases/middle.yaml")
    recipe = load("""
extends: bases/middle.yaml
stages:
  judge:
  train: {optimizer: {learning_rate: 1e-2}}
  make: {sources: [{files: z}]}
  second: {stage: train, before: score}
  third: {stage: train}
""")
    assert (recipe.name, recipe.seed) == ("middle", 3)
    assert names(recipe) == ["make", "train", "score-train", "second", "score-second", "third"]
    config = train_config(recipe)
    assert (config.steps, config.pause) == (5, 0.25)
    assert config.optimizer == toy.ToyOptimizer(learning_rate=0.01, betas=(0.1, 0.2))
    made = recipe.stage("make").config
    assert isinstance(made, toy.MakeConfig)
    assert made.text == "a"
    assert [source.files for source in made.sources] == ["z"]  # lists are replaced


def test_set(load: Load) -> None:
    text = "stages:\n  make: {sources: [{files: a}]}\n  train: {steps: 4}\n  score:\n"
    changes = ["train.steps=9", "train.optimizer.learning_rate=3e-4", "seed=2", "name=other", "score=null"]
    changes += ["make.sources.0.weight=0.5", "make.text=no", "train.precision=float32", "train.model="]
    recipe = load(text, changes)
    assert (recipe.name, recipe.seed, names(recipe)) == ("other", 2, ["make", "train"])
    assert train_config(recipe) == toy.TrainConfig(
        steps=9, precision="float32", optimizer=toy.ToyOptimizer(learning_rate=3e-4)
    )
    assert recipe.stage("make").config == toy.MakeConfig(text="no", sources=(toy.ToySource(files="a", weight=0.5),))


def test_set_from_python_is_the_same(load: Load) -> None:
    text = "stages:\n  make:\n  train: {steps: 4}\n"
    values = {"train.optimizer": {"betas": (0.1, 0.2)}, "train.steps": 9, "make.text": Path("a/b"), "seed": 5}
    written = ["train.optimizer={betas: [0.1, 0.2]}", "train.steps=9", "make.text=a/b", "seed=5"]
    assert load(text, values) == load(text, written)


def test_place_of_an_unknown_stage_name(load: Load) -> None:
    with pytest.raises(RecipeError, match=r"^--to scor: no stage is named scor\n  fix: did you mean score\?$"):
        load(EXPANDED).index("scor", place="--to scor")


def test_recipes_do_not_need_torch(write: Write) -> None:
    """Loading and planning with the real stage table. A step of curation is imported whole, with its kernels; torch is not."""
    import subprocess
    import sys

    import ingot

    write("stages:\n  curate:\n  tokenizer:\n  tokenize:\n  sft: {steps: 3, sequence_length: 64}\n", "real.yaml")
    code = (
        "import sys\nfrom ingot.recipe.load import load_recipe\nfrom ingot.workspace.errors import RecipeError\n"
        "try: load_recipe('real.yaml')\nexcept RecipeError as error: print(error)\n"
        "print([name for name in ('torch', 'transformers', 'ray') if name in sys.modules])"
    )
    root = Path(ingot.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(root)},
    )
    message = "real.yaml:5: sft needs checkpoint, which no earlier stage makes"
    assert done.stdout.split("\n")[0] == message, done.stderr
    assert done.stdout.strip().endswith("\n[]")


def test_claims_about_stages_that_are_not_evaluated(write: Write) -> None:
    text = """
stages:
  eval:
    inputs: {checkpoint: somewhere, shards: somewhere}
  verdict:
    claims:
    - {metric: bits_per_byte, stage: evla, below: unigram}
    - {metric: bits_per_byte, stage: eval, below: pretrain}
    - {metric: bits_per_byte, stage: eval, below: 3.5}
"""
    write("", "somewhere/file")
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(text))
    assert str(caught.value) == (
        "2 problems in the recipe\n"
        "recipe.yaml:5: verdict.claims.0: no stage evla is evaluated before\n  fix: did you mean eval?\n"
        "recipe.yaml:5: verdict.claims.1: no stage pretrain is evaluated before\n  fix: evaluated stages: eval"
    )
