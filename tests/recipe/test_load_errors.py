"""Every way a recipe can be wrong, with the whole message that a person sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingot.data.outside import STEPS
from ingot.recipe.load import load_recipe
from ingot.recipe.problems import RecipeProblems
from ingot.workspace.errors import RecipeError

from .conftest import Load, Problem, Write


def test_unknown_key(problem: Problem) -> None:
    text = "stages:\n  make:\n    text: a\n    stepz: 3\n"
    assert problem(text) == "recipe.yaml:4: unknown key make.stepz\n  fix: did you mean steps?"


def test_unknown_nested_key(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n    optimizer:\n      learnin_rate: 1\n"
    message = "recipe.yaml:5: unknown key train.optimizer.learnin_rate\n  fix: did you mean learning_rate?"
    assert problem(text) == message


def test_unknown_key_in_a_list(problem: Problem) -> None:
    text = "stages:\n  make:\n    sources:\n      - files: a\n      - {files: b, wieght: 2}\n"
    assert problem(text) == "recipe.yaml:5: unknown key make.sources.1.wieght\n  fix: did you mean weight?"


def test_key_at_the_wrong_level_or_abbreviated(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n    learning_rate: 1\n"
    assert (
        problem(text) == "recipe.yaml:4: unknown key train.learning_rate\n  fix: did you mean optimizer.learning_rate?"
    )
    text = "stages:\n  make:\n  train:\n    optimizer: {lr: 1}\n"
    assert problem(text) == "recipe.yaml:4: unknown key train.optimizer.lr\n  fix: did you mean learning_rate?"


def test_unknown_key_like_no_other_lists_all(problem: Problem) -> None:
    text = "stages:\n  make:\n    zzzzzz: 1\n"
    message = "recipe.yaml:3: unknown key make.zzzzzz\n  fix: known keys: text, sources, steps, pause, "
    assert problem(text) == message + "stage, inputs, before, after, seed"


def test_unknown_key_of_the_recipe(problem: Problem) -> None:
    assert problem("nmae: x\nstages: {make: }\n") == "recipe.yaml:1: unknown key nmae\n  fix: did you mean name?"
    message = "recipe.yaml:2: unknown key train\n  fix: stages stand below `stages:`; write stages: {train: …}"
    assert problem("stages: {make: }\ntrain: {}\n") == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("steps: many", "train.steps: expected a whole number, given the text 'many'"),
        ("steps: '3'", "train.steps: expected a whole number, given the text '3'"),
        ("steps: true", "train.steps: expected a whole number, given true"),
        ("steps: 1e3", "train.steps: expected a whole number, given the number 1000.0\n  fix: write 1000"),
        ("steps: 1.5", "train.steps: expected a whole number, given the number 1.5"),
        ("steps:", "train.steps: expected a whole number, given nothing (null)"),
        ("steps: [1, 2]", "train.steps: expected a whole number, given a list of 2"),
        ("steps: {a: 1}", "train.steps: expected a whole number, given a mapping"),
        ("steps: 0", "train.steps: input should be greater than 0, given the number 0"),
        ("pause: long", "train.pause: expected a number, given the text 'long'"),
        ("pause: .inf", "train.pause: expected a number, given the text '.inf'"),
        ("shuffle: yes", "train.shuffle: expected true or false, given the text 'yes'"),
        ("model: 3", "train.model: expected text, given the number 3"),
        ("optimizer: adam", "train.optimizer: expected a mapping, given the text 'adam'"),
        ("optimizer: {betas: 0.9}", "train.optimizer.betas: expected a list, given the number 0.9"),
        ("optimizer: {betas: [0.9]}", "train.optimizer.betas.1 is missing"),
        (
            "precision: bfloat",
            "train.precision: expected 'auto', 'float32' or 'bfloat16', given the text 'bfloat'"
            "\n  fix: did you mean bfloat16?",
        ),
    ],
)
def test_wrong_type(problem: Problem, line: str, message: str) -> None:
    assert problem(f"stages:\n  make:\n  train:\n    {line}\n") == f"recipe.yaml:4: {message}"


def test_choices_in_lists(write: Write) -> None:
    """Unions told apart by a tag: the tag's own line and the nearest tag; options of the chosen one only."""
    text = """
stages:
  curate:
    sources:
    - {python: installed, code_shar: 0.1}
    - {name: other}
    steps:
    - {step: splt}
    - step: near_dedup
      bnds: 3
      rows: many
    - {minimum: 1}
"""
    with pytest.raises(RecipeProblems) as caught:
        load_recipe(write(text))
    assert [str(problem) for problem in caught.value.problems] == [
        "recipe.yaml:5: unknown key curate.sources.0.code_shar\n  fix: did you mean code_share?",
        "recipe.yaml:6: curate.sources.1: a source is {python: installed}, {files: PATTERN}, {code: FOLDER} or {dataset: NAME}",
        "recipe.yaml:8: curate.steps.0.step: there is no data step splt\n  fix: did you mean split?",
        "recipe.yaml:11: curate.steps.1.rows: expected a whole number, given the text 'many'",
        "recipe.yaml:10: unknown key curate.steps.1.bnds\n  fix: did you mean bands?",
        f"recipe.yaml:12: curate.steps.2.step is missing\n  fix: give step: one of {', '.join(STEPS.names())}, or file.py:Name",
    ]


def test_missing_key(problem: Problem) -> None:
    text = "stages:\n  make:\n    sources:\n    - weight: 2\n"
    assert problem(text) == "recipe.yaml:4: make.sources.0.files is missing\n  fix: give files: a pattern"


def test_unknown_stage_kind(problem: Problem) -> None:
    message = (
        "recipe.yaml:2: mkae: there is no stage kind mkae\n"
        "  fix: did you mean make? A stage with a name of its own says its kind: `stage: KIND`"
    )
    assert problem("stages:\n  mkae: {}\n") == message
    kinds = "stage kinds besides file.py:Name: make, train, teach, listen, score, judge"
    message = f"recipe.yaml:3: first: there is no stage kind zzz\n  fix: {kinds}"
    assert problem("stages:\n  first:\n    stage: zzz\n") == message


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("stages:\n  make:\n\t  sources: []\n", "indent with spaces, not with tabs"),
        ("stages:\n  make:\n    a: 1\n   b: 2\n", "indent it as the lines around it, and put a space after each colon"),
        ("stages:\n  make:\n    a: b: 2\n", "indent it as the lines around it, and put a space after each colon"),
    ],
    ids=["tab", "indentation", "colons"],
)
def test_yaml_in_disorder(text: str, fix: str, problem: Problem) -> None:
    found = problem(text)
    assert re.match(r"recipe\.yaml:[34]: not valid YAML: ", found) and found.endswith(f"\n  fix: {fix}")


def test_stage_that_is_no_mapping(problem: Problem) -> None:
    expected = (
        "recipe.yaml:2: make: expected the options of the stage (a mapping)\n  fix: is it an option of the stage above?"
    )
    assert problem("stages:\n  make: 3\n") == f"{expected} then indent it as the others are"
    message = "recipe.yaml:2: 'ma/ke' is not a valid stage name\n  fix: use letters, digits, - and _"
    assert problem("stages:\n  ma/ke: {stage: make}\n") == message


def test_duplicate_keys(problem: Problem) -> None:
    text = "stages:\n  make:\n    steps: 1\n    text: a\n    steps: 2\n"
    assert problem(text) == "recipe.yaml:5: the key steps is written twice, first at recipe.yaml:3\n  fix: remove one"


def test_needs_an_artifact_that_nothing_makes(problem: Problem) -> None:
    message = (
        "recipe.yaml:2: train needs documents, which no earlier stage makes\n"
        "  fix: add a stage that makes documents before it, or write inputs: {documents: PATH}"
    )
    assert problem("stages:\n  train: {}\n") == message
    message = (
        "recipe.yaml:2: train needs documents, which no earlier stage makes\n"
        "  fix: move train after make, or write inputs: {documents: PATH}"
    )
    assert problem("stages:\n  train: {}\n  make: {}\n") == message


def test_inputs_name_a_later_stage_or_itself(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n    inputs:\n      checkpoint: second\n  second: {stage: train}\n"
    message = "recipe.yaml:5: train.inputs.checkpoint: second is a later stage\n  fix: name an earlier stage, or a path"
    assert problem(text) == message
    text = "stages:\n  make:\n  train:\n    inputs:\n      checkpoint: train\n"
    message = "recipe.yaml:5: train.inputs.checkpoint: train is itself\n  fix: name an earlier stage, or a path"
    assert problem(text) == message


def test_inputs_name_an_unknown_stage(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n    inputs: {documents: maek}\n"
    message = (
        "recipe.yaml:4: train.inputs.documents: maek is neither an earlier stage nor an existing path\n"
        "  fix: did you mean make?"
    )
    assert problem(text) == message
    text = "stages:\n  make:\n  train:\n    inputs: {documents: some/where}\n"
    message = (
        "recipe.yaml:4: train.inputs.documents: some/where is neither an earlier stage nor an existing path\n"
        "  fix: earlier stages: make"
    )
    assert problem(text) == message


def test_inputs_name_a_stage_of_the_wrong_kind(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n  score:\n    inputs: {checkpoint: make}\n"
    message = (
        "recipe.yaml:5: score.inputs.checkpoint: make makes documents, not checkpoint\n"
        "  fix: stages that make checkpoint: train"
    )
    assert problem(text) == message


def test_inputs_name_an_unknown_role(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n    inputs: {document: make}\n"
    assert problem(text) == "recipe.yaml:4: unknown input train.inputs.document\n  fix: did you mean documents?"
    text = "stages:\n  make:\n  train:\n    inputs: make\n"
    message = "recipe.yaml:4: train.inputs: expected a mapping of roles to stages or paths"
    assert problem(text) == message + "\n  fix: write inputs: {checkpoint: STAGE}"
    text = "stages:\n  make:\n  train:\n    inputs: {documents: 3}\n"
    assert problem(text) == "recipe.yaml:4: train.inputs.documents: expected the name of a stage or a path"


def test_a_stage_folder_without_the_artifact(problem: Problem, write: Write) -> None:
    write("{}", "old/make-1/DONE")
    text = "stages:\n  make:\n  train:\n    inputs: {checkpoint: old/make-1}\n"
    assert problem(text) == "recipe.yaml:4: train.inputs.checkpoint: the stage folder old/make-1 holds no checkpoint"


def test_a_teacher_must_be_named(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n  teach:\n"
    message = (
        "recipe.yaml:4: teach: which checkpoint is the teacher?\n"
        "  fix: write inputs: {teacher: STAGE} or a path; earlier stages that make one: train"
    )
    assert problem(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "recipe.yaml: the file is empty\n  fix: write name, seed and stages"),
        ("# nothing\n", "recipe.yaml: the file is empty\n  fix: write name, seed and stages"),
        ("- a\n", "recipe.yaml:1: expected a mapping of keys to values\n  fix: write name, seed and stages"),
        ("just words", "recipe.yaml:1: expected a mapping of keys to values\n  fix: write name, seed and stages"),
        ("name: x\n", "recipe.yaml:1: the recipe has no stages\n  fix: write stages: {pretrain: …}"),
        ("name: x\nstages: {}\n", "recipe.yaml:2: the recipe has no stages\n  fix: write stages: {pretrain: …}"),
        (
            "stages: [make]\n",
            "recipe.yaml:1: stages: expected a mapping of stage names to their options"
            "\n  fix: write each stage as `name: {options}`",
        ),
        (
            "name: a b\nstages: {make: }\n",
            "recipe.yaml:1: name: 'a b' is not a valid recipe name"
            "\n  fix: the name becomes a folder: use letters, digits, dots, - and _",
        ),
        (
            "name: [1]\nstages: {make: }\n",
            "recipe.yaml:1: name: [1] is not a valid recipe name"
            "\n  fix: the name becomes a folder: use letters, digits, dots, - and _",
        ),
        ("seed: -1\nstages: {make: }\n", "recipe.yaml:1: seed: expected a whole number from 0 to 4294967295, given -1"),
        ("seed: x\nstages: {make: }\n", "recipe.yaml:1: seed: expected a whole number from 0 to 4294967295, given 'x'"),
        (
            "stages:\n  make:\n    text: 'a\n",
            "recipe.yaml:4: not valid YAML: while scanning a quoted scalar, found unexpected end of stream",
        ),
        (
            "a: 1\n b: 2\n",
            "recipe.yaml:2: not valid YAML: mapping values are not allowed here\n"
            "  fix: indent it as the lines around it, and put a space after each colon",
        ),
        (
            "a: 1\n---\nb: 2\n",
            "recipe.yaml:2: not valid YAML: expected a single document in the stream, but found another document",
        ),
        ("a: !!python/name:os.system\n", "recipe.yaml:1: '' cannot be read as a python/name:os.system"),
        ("a: &x [*x]\n", "recipe.yaml:1: an alias that contains itself\n  fix: write the value out"),
        ("a: &x {<<: *x}\n", "recipe.yaml:1: an alias that contains itself\n  fix: write the value out"),
        (
            "seed: &x 3\nstages:\n  make:\n    <<: *x\n",
            "recipe.yaml:4: << brings in mappings, and this is none\n"
            "  fix: write `<<: *name`, with `&name` in front of the mapping that is meant",
        ),
        (
            "stages:\n  make:\n  train: &x\n    stepps: 3\n  second:\n    <<: *x\n    stage: train\n",
            "2 problems in the recipe\n"
            "recipe.yaml:4: unknown key train.stepps\n  fix: did you mean steps?\n"
            "recipe.yaml:4: unknown key second.stepps\n  fix: did you mean steps?",
        ),
        ("a: 1e999\nstages: {make: }\n", "recipe.yaml:1: '1e999' cannot be read as a float"),
        ("? [a]\n: 1\n", "recipe.yaml:1: a key must be a word, not a list or a mapping"),
    ],
)
def test_whole_file(problem: Problem, text: str, message: str) -> None:
    assert problem(text) == message


def test_billion_laughs(problem: Problem) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    message = "recipe.yaml: more than 100,000 values: aliases of aliases?\n  fix: write them out"
    assert problem("\n".join(lines)) == message


def test_nested_too_deeply(problem: Problem) -> None:
    assert problem("a: " + "[" * 5000) == "recipe.yaml: nested too deeply to read"


def test_no_such_file_and_not_text(problem: Problem, write: Write) -> None:
    with pytest.raises(RecipeError, match=r"^nowhere.yaml: there is no such file$"):
        load_recipe("nowhere.yaml")
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecipeError, match=r"^binary.yaml: not a text file in UTF-8$"):
        load_recipe("binary.yaml")
    Path("folder.yaml").mkdir()
    with pytest.raises(RecipeError, match=r"^folder.yaml: cannot be read: Is a directory$"):
        load_recipe("folder.yaml")


def test_extends_a_missing_file(problem: Problem) -> None:
    message = "recipe.yaml:2: there is no file base/none.yaml\n  fix: write the path from this recipe's folder"
    assert problem("name: x\nextends: base/none.yaml\n") == message
    text = "extends: 3\nstages: {make: }\n"
    assert problem(text) == "recipe.yaml:1: extends: expected the path of a recipe file"


def test_extends_in_a_circle(problem: Problem, write: Write) -> None:
    write("extends: c.yaml\n", "b.yaml")
    write("extends: recipe.yaml\n", "c.yaml")
    message = "c.yaml:1: the recipe extends itself: recipe.yaml extends b.yaml extends c.yaml extends recipe.yaml"
    assert problem("extends: b.yaml\nstages: {make: }\n") == message


def test_an_error_points_to_the_file_that_wrote_the_value(problem: Problem, write: Write) -> None:
    write("stages:\n  make:\n    steps: wrong\n  train:\n    steps: 1\n", "bases/base.yaml")
    text = "extends: bases/base.yaml\nstages:\n  train:\n    pause: wrong\n"
    message = (
        "2 problems in the recipe\n"
        "bases/base.yaml:3: make.steps: expected a whole number, given the text 'wrong'\n"
        "recipe.yaml:4: train.pause: expected a number, given the text 'wrong'"
    )
    assert problem(text) == message


def test_before_an_unknown_stage(problem: Problem) -> None:
    text = "stages:\n  make:\n  train:\n    before: mak\n"
    message = "recipe.yaml:4: train.before: no other stage is named mak\n  fix: did you mean make?"
    assert problem(text) == message


def test_after_problems(problem: Problem) -> None:
    text = "stages:\n  make:\n  score: {after: each}\n"
    assert problem(text) == "recipe.yaml:3: score.after: no earlier stage makes a checkpoint"
    text = "stages:\n  make: {after: each}\n"
    assert problem(text) == "recipe.yaml:2: make.after: a make stage does not look at checkpoints"
    text = "stages:\n  make:\n  train:\n  score: {after: 3}\n"
    message = "recipe.yaml:4: score.after: expected 'each' or stages"
    assert problem(text) == message + "\n  fix: write `after: each`, or a stage, or a list of stages"
    text = "stages:\n  make:\n  train:\n  score: {after: [tain]}\n"
    message = "recipe.yaml:4: score.after: no earlier stage tain makes a checkpoint\n  fix: did you mean train?"
    assert problem(text) == message
    text = "stages:\n  make:\n  train:\n  score: {after: each}\n  score-train: {stage: score}\n"
    assert problem(text) == "recipe.yaml:4: score.after makes a stage score-train, which exists already"


def test_set_problems(problem: Problem) -> None:
    text = "stages:\n  make: {sources: [{files: a}]}\n  train:\n"
    assert (
        problem(text, ["train.stepz=3"]) == "--set train.stepz=3: unknown key train.stepz\n  fix: did you mean steps?"
    )
    message = "--set train.steps=x: train.steps: expected a whole number, given the text 'x'"
    assert problem(text, ["train.steps=x"]) == message
    message = "--set train.steps.x=3: train.steps: expected a whole number, given a mapping"
    assert problem(text, ["train.steps.x=3"]) == message
    assert problem(text, ["tran.steps=3"]) == "--set tran.steps=3: no stage is named tran\n  fix: did you mean train?"
    message = "--set train.steps: expected a key and a value\n  fix: write --set stage.key=value"
    assert problem(text, ["train.steps"]) == message
    message = "--set .steps=3: a key is names separated by dots\n  fix: write --set stage.key=value"
    assert problem(text, [".steps=3"]) == message
    message = "--set make.sources.4.weight=3: 4 is not an index of a list of 1\n  fix: count from 0"
    assert problem(text, ["make.sources.4.weight=3"]) == message
    message = "--set seed=x: seed: expected a whole number from 0 to 4294967295, given 'x'"
    assert problem(text, ["seed=x"]) == message
    assert problem(text, {"train.steps": "x"}).startswith("set train.steps: train.steps: expected a whole number")
    assert problem(text, {"train.steps": 1j}) == "set train.steps: '1j' (complex) cannot be part of a recipe"


def test_several_problems_come_together(load: Load) -> None:
    text = "nme: x\nseed: a\nstages:\n  make: {stps: 1}\n  train: {steps: x, shufle: 1}\n  score: {inputs: {a: b}}\n"
    with pytest.raises(RecipeProblems) as caught:
        load(text, ["train.pause=x"])
    assert [problem.place for problem in caught.value.problems] == [
        "recipe.yaml:1",
        "recipe.yaml:2",
        "recipe.yaml:4",
        "recipe.yaml:5",
        "--set train.pause=x",
        "recipe.yaml:5",
        "recipe.yaml:6",
    ]
