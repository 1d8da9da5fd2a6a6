"""The preset files, read and merged: plain mappings, no types and nothing heavy, so that config.py can start from them.

    model: { preset: smollm3-3b-mini, width: 160 }

is the preset's mapping with the other keys laid over it: mappings are merged key by key, anything else is replaced. A
mapping whose `kind` changes is replaced too, because options of another kind of part mean nothing to the new one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from ingot.workspace.errors import IngotError


@dataclass(frozen=True)
class PresetEntry:
    """A preset as its file states it; `system` is the name of the file."""

    name: str
    system: str
    file: Mapping[str, Any]
    size: Mapping[str, Any]
    mini: bool


@cache
def entries() -> Mapping[str, PresetEntry]:
    """Every preset by name, in the order of the files."""
    found: dict[str, PresetEntry] = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same reader in C, where it is built in
    paths = {path.name.removesuffix(".yaml"): path for path in files("ingot.model.presets").iterdir()}
    for system in sorted(name for name, path in paths.items() if path.name.endswith(".yaml")):
        file = yaml.load(paths[system].read_text(encoding="utf-8"), loader)
        for name, size in file["sizes"].items():
            found[name] = PresetEntry(name, system, file, size, mini=False)
        for name, model in file["minis"].items():
            found[name] = PresetEntry(name, system, file, {"model": model}, mini=True)
    return found


def names() -> tuple[str, ...]:
    """The names of all presets."""
    return tuple(entries())


def entry(name: str) -> PresetEntry:
    """The preset of this name; an unknown one is an error with the nearest names."""
    if name not in entries():
        near = difflib.get_close_matches(name, entries(), n=4, cutoff=0.5)
        fix = f"did you mean {' or '.join(near)}?" if near else "`ingot model list` shows all"
        raise IngotError(f"there is no preset {name!r}", fix=fix)
    return entries()[name]


def started(model: Mapping[str, Any]) -> dict[str, Any]:
    """`model` with its `preset`, if it names one, underneath."""
    if "preset" not in model:
        return dict(model)
    own = {key: value for key, value in model.items() if key != "preset"}
    return merged(started(entry(str(model["preset"])).size["model"]), own)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`."""
    result = dict(base)
    for key, value in over.items():
        below: Any = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        if both and value.get("kind", below.get("kind")) == below.get("kind"):
            value = merged(below, value)
        result[key] = value
    return result


def tuples(value: Any) -> Any:
    """`value` with tuples for lists: strict validation of Python values takes no list where a tuple is declared."""
    if isinstance(value, Mapping):
        return {key: tuples(inner) for key, inner in value.items()}
    return tuple(tuples(inner) for inner in value) if isinstance(value, list) else value
