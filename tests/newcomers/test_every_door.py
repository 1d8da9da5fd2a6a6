"""Whatever a recipe names is a built-in name or `file.py:Name`: found by walking the options of all stages, so none is forgotten.

A thing is named through a table of kinds (workspace/kinds.py), as a function (workspace/functions.py), or as one of the texts
below. A choice between config classes that is neither would be a closed door.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ingot.checkpoints.families.table import find_family
from ingot.envs.tools.find import find_tool
from ingot.envs.verifiers.instructions.instruction import find_instruction
from ingot.recipe.stages import STAGES
from ingot.workspace.config import Config
from ingot.workspace.errors import IngotError, RecipeError
from ingot.workspace.functions import FunctionName
from ingot.workspace.kinds import KindName, Kinds, KindsByName

DOORS = {
    "RL algorithm", "SFT algorithm", "algorithm of reward models", "attention backend", "balancer", "conversation filter",
    "curriculum", "data step", "distillation algorithm", "eval suite", "feed-forward", "file format", "form of rows", "judge",
    "merge method", "mixer", "optimizer", "position scaling", "preference algorithm", "reward function", "sampler transport",
    "synthesis task", "task kind", "task kind or maker", "verifier of answers",
}  # fmt: skip
Door = Kinds[Any] | FunctionName


def parts(annotation: Any) -> Iterator[Any]:
    """A type and all that it is made of."""
    yield annotation
    for each in typing.get_args(annotation):
        if not isinstance(each, str | int | float):
            yield from parts(each)


@cache
def configs() -> dict[type[BaseModel], list[tuple[str, Any]]]:
    """Every class of options that a recipe may give, from the stages down, with its fields."""
    found: dict[type[BaseModel], list[tuple[str, Any]]] = {}
    waiting: list[type[BaseModel]] = [stage.config for stage in STAGES.values()]
    while waiting:
        config = waiting.pop()
        if config in found:
            continue
        fields = [
            (name, part) for name, field in config.model_fields.items() for part in (field.annotation, *field.metadata)
        ]
        found[config] = [(name, each) for name, part in fields for each in parts(part)]
        for _, each in found[config]:
            if inspect.isclass(each) and issubclass(each, BaseModel):
                waiting.append(each)
        for table in tables(config, found[config]):
            waiting += table.builtin().values()
    return found


def tables(config: type[BaseModel], fields: list[tuple[str, Any]]) -> list[Kinds[Any]]:
    """The tables of kinds that the options of a class name."""
    named = [each.kinds if isinstance(each, KindName) else each for _, each in fields]
    by_name = [config.kinds] if issubclass(config, KindsByName) else []
    return [each for each in named if isinstance(each, Kinds)] + by_name


def doors() -> dict[str, Door]:
    """Everything that recipes name, by what it is."""
    functions = [each for fields in configs().values() for _, each in fields if isinstance(each, FunctionName)]
    kinds = [each for config, fields in configs().items() for each in tables(config, fields)]
    found: list[Door] = [*functions, *kinds]
    return {each.what: each for each in found}


def test_these_are_the_things_that_recipes_name() -> None:
    assert set(doors()) == DOORS


def test_no_option_is_a_choice_between_classes_of_ours() -> None:
    """A union of several configs could take no class of yours. Sources say where files are; how these are read is a door."""
    closed = set()
    for config, fields in configs().items():
        for name, each in fields:
            members = [
                typing.get_args(one)[0] if typing.get_origin(one) is typing.Annotated else one
                for one in typing.get_args(each)
            ]
            if sum(inspect.isclass(one) and issubclass(one, Config) for one in members) > 1:
                closed.add(f"{config.__name__}.{name}")
    assert len(configs()) > 250
    assert closed == {"CurateConfig.sources"}


@pytest.mark.parametrize("what", sorted(DOORS))
def test_each_takes_a_file_of_yours(what: str, tmp_path: Path) -> None:
    door, path = doors()[what], tmp_path / "mine.py"
    if isinstance(door, FunctionName):
        name = door.head.partition("(")[0]
        path.write_text(f"def {door.head}:\n    return None\n\n\nclass Other:\n    pass\n", encoding="utf-8")
        assert door.read(f"{path}:{name}") == f"{path}:{name}" and door.find(f"{path}:{name}").__name__ == name
        refused = door.find
    else:
        base = next(iter(door.builtin().values()))
        code = (
            f"from {base.__module__} import {base.__name__}\n\nclass Mine({base.__name__}): pass\nclass Other: pass\n"
        )
        path.write_text(code, encoding="utf-8")
        name, refused = "Mine", door.find
        found = door.find(f"{path}:Mine")
        assert issubclass(found, base) and found.kind_name() == f"{path}:Mine"
    for wrong, said in {"Min": "did you mean", "Other": "write ", "nothing": "has no nothing"}.items():
        if wrong == "Min" and name != "Mine":
            continue
        with pytest.raises(RecipeError, match=said):
            refused(f"{path}:{wrong}")
    with pytest.raises(RecipeError, match=f"there is no {what} not_there"):
        refused("not_there")


TEXTS: dict[str, tuple[str, Callable[[str], object]]] = {
    "tool": (
        "def mine(text: str) -> str:\n    'Say it.'\n    return text\n",
        lambda spec: find_tool(spec)[0].name == "mine",
    ),
    "instruction": (
        "def mine(answer: str) -> bool:\n    return True\n",
        lambda spec: find_instruction(spec).follows("a"),
    ),
    "model family": (
        "from ingot.checkpoints.families.llama import LLAMA\nmine = LLAMA\n",
        lambda spec: find_family(spec, "here"),
    ),
}


@pytest.mark.parametrize("what", TEXTS)
def test_each_text_takes_a_file_of_yours(what: str, tmp_path: Path) -> None:
    code, find = TEXTS[what]
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    assert find(f"{tmp_path}/mine.py:mine")
    with pytest.raises(IngotError, match="has no other"):
        find(f"{tmp_path}/mine.py:other")
