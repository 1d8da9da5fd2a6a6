"""Properties that hold for any input of the loader."""

from __future__ import annotations

import math
import string
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingot.recipe.load import load_recipe
from ingot.recipe.problems import Problems
from ingot.recipe.read import parse_changes
from ingot.recipe.stages import STAGES
from ingot.recipe.tree import dump_yaml, parse_yaml
from ingot.workspace.errors import RecipeError

from . import toy

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

KNOWN = (*toy.TABLE, *STAGES, "name", "seed", "stages", "extends", "stage", "inputs", "before", "after", "each")
KNOWN += ("steps", "text", "sources", "optimizer", "learning_rate", "model", "claims", "checkpoint", "files", "eval")
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(KNOWN)
    | st.text(max_size=8)
    | st.sampled_from(["3e-4", "1e999", "0x1f", "1_0", "~", "on", "=", "<<", "2024-01-01", "\ud800", "a\u2028b", "\0"])
)
keys = st.sampled_from(KNOWN) | st.text(max_size=6)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
stages = st.dictionaries(
    st.sampled_from([*toy.TABLE, *STAGES, "other"]), st.dictionaries(keys, trees, max_size=4) | trees, max_size=4
)
recipes = st.fixed_dictionaries({"stages": stages}, optional={"name": trees, "seed": trees, "before": trees})


@contextmanager
def file_of(content: str | bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        yield path


@pytest.mark.parametrize("table", [toy.TABLE, STAGES], ids=["toy", "real"])
@quick
@given(tree=trees | recipes)
def test_any_tree_is_a_recipe_or_a_recipe_error(table: Any, tree: Any) -> None:
    with file_of(yaml.safe_dump(tree)) as path, suppress(RecipeError):
        load_recipe(path, table=table)


@quick
@given(content=st.text() | st.binary() | st.text(alphabet="&*!%@`|>{}[],:#?-'\"\\ \n\t<~a1"))
def test_any_bytes_are_a_recipe_or_a_recipe_error(content: str | bytes) -> None:
    with file_of(content) as path, suppress(RecipeError):
        load_recipe(path, table=toy.TABLE)


@quick
@given(
    changes=st.lists(
        st.text(max_size=12) | st.tuples(keys, keys, st.text(max_size=6)).map(lambda t: f"{t[0]}.{t[1]}={t[2]}")
    )
)
def test_any_change_is_made_or_a_recipe_error(changes: list[str]) -> None:
    with file_of("stages:\n  make:\n  train:\n") as path, suppress(RecipeError):
        load_recipe(path, changes, toy.TABLE)


@quick
@given(changes=st.dictionaries(keys | st.just("train.steps") | st.just("make"), trees, max_size=3))
def test_any_python_change_is_made_or_a_recipe_error(changes: dict[str, Any]) -> None:
    with file_of("stages:\n  make:\n  train:\n") as path, suppress(RecipeError):
        load_recipe(path, changes, toy.TABLE)


whole_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["1e3", "on", "010", ".inf", ""]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | whole_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(whole_text, inner, max_size=3),
    max_leaves=10,
)


@quick
@given(value=json_values)
def test_what_is_written_is_read_back(value: Any) -> None:
    problems = Problems()
    assert parse_yaml(dump_yaml({"key": value}), "file", problems).plain() == {"key": value}
    assert not problems.found


@quick
@given(value=json_values)
def test_set_round_trip(value: Any) -> None:
    """`--set a.b=YAML` gives exactly the value, with the option as its place."""
    problems = Problems()
    text = dump_yaml(value)
    (change,) = parse_changes([f"a.b={text}"], problems)
    assert not problems.found
    assert (change.path, change.value.plain()) == (("a", "b"), value)
    assert change.value.place == f"--set a.b={text}"


@quick
@given(
    value=st.floats(min_value=1e-300, max_value=1e300), notation=st.sampled_from(["{!r}", "{:e}", "{:.17g}", "{:.3E}"])
)
def test_numbers_in_every_notation(value: float, notation: str) -> None:
    written = notation.format(value)
    with file_of("stages:\n  make:\n  train:\n") as path:
        recipe = load_recipe(path, [f"train.optimizer.learning_rate={written}"], toy.TABLE)
    config = recipe.stage("train").config
    assert isinstance(config, toy.TrainConfig)
    assert config.optimizer.learning_rate == float(written)
    assert math.isclose(config.optimizer.learning_rate, value, rel_tol=1e-3)


FIELDS = [name for name in (*toy.TrainConfig.model_fields, "stage", "inputs", "before", "after") if len(name) > 3]


@quick
@given(
    right=st.sampled_from(FIELDS),
    position=st.integers(0, 20),
    letter=st.sampled_from(string.ascii_lowercase),
    edit=st.sampled_from(["insert", "delete", "replace", "swap"]),
)
def test_a_key_with_one_edit_suggests_the_right_one(right: str, position: int, letter: str, edit: str) -> None:
    at = position % len(right)
    wrong = {
        "insert": right[:at] + letter + right[at:],
        "delete": right[:at] + right[at + 1 :],
        "replace": right[:at] + letter + right[at + 1 :],
        "swap": right[:at] + right[at + 1 : at + 2] + right[at] + right[at + 2 :],
    }[edit]
    if wrong in toy.TrainConfig.model_fields or wrong in FIELDS:
        return
    with file_of(f"stages:\n  make:\n  train:\n    {wrong}: 1\n") as path, pytest.raises(RecipeError) as caught:
        load_recipe(path, table=toy.TABLE)
    assert str(caught.value) == f"{path}:4: unknown key train.{wrong}\n  fix: did you mean {right}?"
