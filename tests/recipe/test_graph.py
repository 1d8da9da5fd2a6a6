"""The hash of a stage changes exactly with what its result depends on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from ingot.recipe.graph import hash_stages, path_hash
from ingot.recipe.load import load_recipe

from . import toy
from .conftest import Load, Write

TEXT = """
seed: 3
stages:
  make: {text: a}
  train: {steps: 4}
  second: {stage: train}
  score: {after: each}
  judge: {claims: [better]}
"""


def changed(load: Load, *changes: str) -> set[str]:
    """The stages whose hash is not what it was."""
    before, after = hash_stages(load(TEXT), toy.TABLE), hash_stages(load(TEXT, changes), toy.TABLE)
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_a_change_reaches_what_follows_from_it_and_nothing_else(load: Load) -> None:
    everything = set(hash_stages(load(TEXT), toy.TABLE))
    assert changed(load) == set()
    assert changed(load, "name=other") == set()
    assert changed(load, "seed=4") == changed(load, "make.text=b") == everything
    assert changed(load, "second.steps=9") == {"second", "score-second", "judge"}
    assert changed(load, "second.seed=9") == {"second", "score-second", "judge"}
    assert changed(load, "second.seed=3") == set()  # what it was anyway
    assert changed(load, "train.steps=4") == changed(load, "train.optimizer.learning_rate=0.001") == set()
    assert changed(load, "score.count=3") == {"score-train", "score-second", "judge"}
    assert changed(load, "judge.claims=[worse]") == {"judge"}
    assert changed(load, "second.inputs={checkpoint: null}") == {"second", "score-second", "judge"}


def test_the_version_of_a_kind_is_part_of_the_hash(load: Load) -> None:
    before, after = (hash_stages(load(TEXT), table) for table in (toy.TABLE, toy.table({"score": 2})))
    assert {name for name in before if before[name] != after[name]} == {"score-train", "score-second", "judge"}


def test_the_hash_is_sha256_of_the_written_formula(load: Load) -> None:
    """Independent of our code: the same name on every machine."""
    content = {
        "kind": "make",
        "version": 1,
        "config": {"text": "a", "sources": [], "steps": 2, "pause": 0.0},
        "outside": {},
        "seed": 3,
        "inputs": {},
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert hash_stages(load(TEXT), toy.TABLE)["make"] == hashlib.sha256(canonical.encode()).hexdigest()[:12]


def test_path_inputs_are_hashed_by_content(write: Write) -> None:
    recipe = write("stages:\n  score: {inputs: {checkpoint: model}}\n")
    write("one", "model/weights/a.bin")
    first = hash_stages(load_recipe(recipe, table=toy.TABLE), toy.TABLE)
    write("two", "model/weights/a.bin")
    second = hash_stages(load_recipe(recipe, table=toy.TABLE), toy.TABLE)
    write("one", "elsewhere/weights/a.bin")
    third = hash_stages(load_recipe(recipe, ["score.inputs.checkpoint=elsewhere"], toy.TABLE), toy.TABLE)
    assert first != second
    assert first == third


def test_path_hash(write: Write) -> None:
    write("x", "a/one")
    write("x", "b/two")
    assert path_hash(Path("a")) != path_hash(Path("b"))  # names count
    before = path_hash(Path("a"))
    write("half", "a/one.partial")
    assert path_hash(Path("a")) == before
    assert path_hash(Path("a/one")) == path_hash(Path("b/two"))
