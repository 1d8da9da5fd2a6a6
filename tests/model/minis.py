"""The miniatures of the presets, each architecture once. Needs torch and pytest only: tests on a GPU read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ingot.checkpoints.families.table import architecture
from ingot.model.config import ModelConfig
from ingot.model.presets.preset import presets


def distinct_minis() -> dict[str, ModelConfig]:
    """Every miniature by name; of those that compute the same (a system and one trained further) only the first."""
    found: dict[str, tuple[str, ModelConfig]] = {}
    for one in presets():
        if one.mini:
            parts = [architecture(one.model), one.model.model_dump(mode="json")["quantisation"]]
            found.setdefault(json.dumps(parts, sort_keys=True), (one.name, one.model))
    return dict(found.values())


MINIS = distinct_minis()


def switches(value: Any, path: str = "") -> set[tuple[str, Any]]:
    """Every option with its value, or that it has one where it is a number."""
    if isinstance(value, Mapping):
        return {found for key, inner in value.items() for found in switches(inner, f"{path}.{key}")}
    if isinstance(value, list):
        return {found for inner in value for found in switches(inner, path)}
    return {(path, value if isinstance(value, bool | str | None) else "a number")}


def covering(minis: Mapping[str, ModelConfig]) -> set[str]:
    """Few miniatures that together have every switch of every layer and model: about half of them."""
    having = dict[str, set[tuple[str, Any]]]()
    for name, config in minis.items():
        model = config.model_dump(mode="json", exclude={"layers", "export_as", "multi_token"})
        having[name] = switches(list(model.pop("blocks").values())) | switches(model, "model")
    missing, chosen = set[tuple[str, Any]]().union(*having.values()), set[str]()
    while missing:
        name = max(having, key=lambda name: len(having[name] & missing))
        chosen.add(name)
        missing -= having[name]
    return chosen


def covering_fast(names: Iterable[str]) -> list[Any]:
    """The names as values of a parameter; those that have no switch of their own are slow."""
    fast = covering({name: MINIS[name] for name in names})
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def mini(name: str, vocabulary: int) -> ModelConfig:
    """The miniature with a vocabulary."""
    return MINIS[name].model_copy(update={"vocabulary_size": vocabulary})


def few_layers(config: ModelConfig) -> ModelConfig:
    """Every kind of layer once and the first once more, 2 to 5 layers instead of 5 to 8: all parts, and one of them twice."""
    kinds = list(dict.fromkeys(config.layer_names))
    return ModelConfig.model_validate(config.model_dump() | {"layers": " ".join([*kinds, kinds[0]])})
