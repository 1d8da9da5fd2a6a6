"""The table of stages: its paths lead to code, and the config classes fit what the loader promises."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from ingot.recipe.declare import STAGE_KEYS
from ingot.recipe.problems import Problems
from ingot.recipe.stages import STAGES
from ingot.recipe.tree import Node
from ingot.recipe.validate import _models, _tables_of, validate
from ingot.workspace.config import Config
from ingot.workspace.kinds import KindsByName


@pytest.mark.parametrize("kind", STAGES)
def test_the_paths_of_the_table_lead_to_a_config_and_a_run(kind: str) -> None:
    signature = inspect.signature(STAGES[kind].run, eval_str=True)
    assert list(signature.parameters) == ["config", "inputs", "folder"]
    assert signature.parameters["config"].annotation is STAGES[kind].config


@pytest.mark.parametrize("kind", STAGES)
def test_configs_keep_clear_of_the_keys_of_a_recipe(kind: str) -> None:
    config = STAGES[kind].config
    assert issubclass(config, Config)
    assert not set(config.model_fields) & {*STAGE_KEYS, "name"}


def classes_in(model: type[BaseModel]) -> set[type[BaseModel]]:
    """The config class and all config classes inside it; of a family of kinds, the built-in ones."""
    found: set[type[BaseModel]] = set()
    waiting: list[type[BaseModel]] = [model]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += [inner for field in one.model_fields.values() for inner in _models(field.annotation)]
            tables = [table for field in one.model_fields.values() for table in _tables_of(field)]
            tables += [one.kinds] if issubclass(one, KindsByName) else []
            waiting += [kind for table in tables for kind in table.builtin().values()]
    return {one for one in found if not inspect.isabstract(one)}


@pytest.mark.parametrize("kind", STAGES)
def test_every_option_is_described_and_every_default_is_valid(kind: str) -> None:
    for model in classes_in(STAGES[kind].config):
        assert issubclass(model, Config), f"{model.__name__} does not derive from Config"
        assert model.__doc__, f"{model.__name__} has no docstring"
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name} has no description"
        try:
            model.model_validate({})
        except ValidationError as error:
            assert {detail["type"] for detail in error.errors()} <= {"missing", "value_error"}, model.__name__


@pytest.mark.parametrize("kind", STAGES)
def test_a_config_survives_being_written_and_read(kind: str) -> None:
    """What recipe.yaml of a stage folder says is read back to the same config."""
    config = STAGES[kind].config
    filled = _fill(config)
    node = _node(json.loads(filled.model_dump_json()))
    problems = Problems()
    again = validate(config, node, kind, problems)
    assert not problems.found, [str(problem) for problem in problems.found]
    assert again == filled


def _node(value: Any) -> Node:
    if isinstance(value, dict):
        return Node({key: _node(child) for key, child in value.items()}, "here")
    if isinstance(value, list):
        return Node([_node(child) for child in value], "here")
    return Node(value, "here")


REQUIRED: dict[str, dict[str, Any]] = {
    "reward": {"steps": 5, "sequence_length": 64, "files": ["pairs.jsonl"]},
    "curate": {},
    "synthesize": {"tasks": [{"task": "rephrase"}], "endpoint": {"url": "http://127.0.0.1:1/v1", "model": "m"}},
    "pretrain": {
        "steps": 3,
        "sequence_length": 8,
        "batch_tokens": 16,
        "phases": [{"until": 1.0, "weights": {"all": 1}}],
    },
    "sft": {"steps": 3, "sequence_length": 8},
    "prefer": {"steps": 3, "sequence_length": 8},
    "rl": {"steps": 3, "sequence_length": 128},
    "distill": {"steps": 3, "sequence_length": 8},
    "choose": {"metric": "bits_per_byte"},
    "verdict": {"claims": [{"metric": "bits_per_byte", "stage": "sft", "below": 3.0}]},
}


def _fill(config: type[Config]) -> Config:
    kind = next(kind for kind in STAGES if STAGES[kind].config is config)
    return config.model_validate(REQUIRED.get(kind, {}))
