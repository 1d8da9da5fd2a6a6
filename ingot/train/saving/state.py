"""The tensors in a checkpoint of a run in progress, by name, and loading them back.

    model.NAME                     weights and persistent buffers
    optimizer.state.NAME.PART      what the optimizer remembers of parameter NAME: moments, momentum, steps

Nothing else is needed: everything random is a function of (seed, step), the data's order too, so that there is no state of a
random generator, and hyperparameters are those of the recipe. Names and shapes are those of the whole model, whatever layout it
is trained in: tensors that are divided over ranks are DTensors, and each rank reads and writes its shard of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor

from ingot.checkpoints.checkpoint import STATE, TRAINING
from ingot.checkpoints.state_files import MODEL, load_state_files, stored_shapes
from ingot.model.lora import frozen_names
from ingot.model.order import ShardOrder, orders
from ingot.model.transformer import Transformer
from ingot.train.parallel.layout import world_size
from ingot.workspace.errors import ArtifactError, listed
from ingot.workspace.files import read_json

OPTIMIZER = "optimizer.state."
NAMED = 3  # how many names an error shows


def run_state(model: Transformer, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """The live tensors (and plain numbers) of a run by name; without an optimizer, or before its first step, the model's.

    Of a model with adapters the frozen weights are left out: they are those of its base.
    """
    frozen = frozen_names(model)
    whole: dict[str, Any] = get_model_state_dict(model)
    state: dict[str, Any] = {MODEL + name: value for name, value in whole.items() if name not in frozen}
    if optimizer is not None and optimizer.state:
        remembered: dict[str, Any] = get_optimizer_state_dict(model, optimizer)
        state |= _flat(remembered["state"])
    return state


def run_orders(model: Transformer, state: Mapping[str, Any]) -> dict[str, ShardOrder]:
    """Which of these tensors have their rows in the ranks' order: parameters, and what is remembered of each row of them."""
    by_parameter = orders(model)
    found = {}
    for name, value in state.items():
        order = by_parameter.get(_parameter(name) if name.startswith(OPTIMIZER) else name.removeprefix(MODEL))
        if order is not None and isinstance(value, DTensor):
            found[name] = order
    return found


def load_run(path: Path, model: Transformer, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Load a checkpoint of any world size and layout in place; returns the contents of training.json ({} without one)."""
    stored = {name: shape for name, shape in stored_shapes(path / STATE).items() if not _elsewhere(name, model)}
    state = run_state(model, None)
    _check_model(state, stored, path)
    if optimizer is None:
        load_state_files(state, path / STATE, run_orders(model, state))
    elif not any(name.startswith(OPTIMIZER) for name in stored):  # saved before the first step
        load_state_files(state, path / STATE, run_orders(model, state))
        optimizer.state.clear()
    else:
        # Torch makes the state of a fresh optimizer with an update by zero. A parameter that the checkpoint does not remember
        # had no gradient yet: it is not remembered here either. Groups (learning rates and so on) stay those of this run.
        whole: dict[str, Any] = get_optimizer_state_dict(model, optimizer)
        _check_optimizer(_flat(whole["state"]), stored, path)
        known = {_parameter(name) for name in stored if name.startswith(OPTIMIZER)}
        whole["state"] = {name: parts for name, parts in whole["state"].items() if name in known}
        state |= _flat(whole["state"])
        load_state_files(state, path / STATE, run_orders(model, state))
        for name, parts in whole["state"].items():
            whole["state"][name] = {part: state[_key(name, part)] for part in parts}
        set_optimizer_state_dict(model, optimizer, whole, options=StateDictOptions(strict=False))
    return dict(read_json(path / TRAINING)) if (path / TRAINING).exists() else {}


def _flat(parts_by_parameter: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {_key(name, part): value for name, parts in parts_by_parameter.items() for part, value in parts.items()}


def _key(parameter: str, part: str) -> str:
    return f"{OPTIMIZER}{parameter}.{part}"


def _parameter(name: str) -> str:
    """The parameter that this state belongs to."""
    return name.removeprefix(OPTIMIZER).rpartition(".")[0]


def _elsewhere(name: str, model: Transformer) -> bool:
    """Whether this is of another stage of the pipeline: that stage's ranks read it."""
    return (_parameter(name) if name.startswith(OPTIMIZER) else name.removeprefix(MODEL)) in model.elsewhere


def _part(name: str) -> str:
    return name.rpartition(".")[2]


def _check_model(state: Mapping[str, Any], stored: Mapping[str, tuple[int, ...] | None], path: Path) -> None:
    here = {name.removeprefix(MODEL): tuple(value.shape) for name, value in state.items() if name.startswith(MODEL)}
    there = {name.removeprefix(MODEL): shape for name, shape in stored.items() if name.startswith(MODEL)}
    differences = [
        *(f"{name} is missing in it" for name in here if name not in there),
        *(f"{name} is only in it" for name in there if name not in here and world_size() == 1),  # or on another rank
        *(
            f"{name} is {_shape(there[name])} in it and {_shape(here[name])} here"
            for name in here
            if name in there and here[name] != there[name]
        ),
    ]
    if differences:
        raise ArtifactError(
            f"the checkpoint is of another model: {listed(differences, NAMED, '; ')}",
            place=str(path),
            fix="use the model's configuration as in its config.json, or start in an empty folder",
        )


def _check_optimizer(state: Mapping[str, Any], stored: Mapping[str, tuple[int, ...] | None], path: Path) -> None:
    here = {name for name in state if name.startswith(OPTIMIZER)}
    there = {name for name in stored if name.startswith(OPTIMIZER)}
    known = {_parameter(name) for name in there}
    if (there <= here or world_size() > 1) and all(name in there for name in here if _parameter(name) in known):
        return
    parts_here, parts_there = sorted({_part(name) for name in here}), sorted({_part(name) for name in there})
    if parts_here != parts_there:
        difference = f"it remembers {', '.join(parts_there)}, this run's {', '.join(parts_here)}"
    else:
        only = [f"it remembers {name.removeprefix(OPTIMIZER)}, this run's does not" for name in there - here]
        only += [f"this run's remembers {name.removeprefix(OPTIMIZER)}, it does not" for name in here - there]
        difference = listed(sorted(only), NAMED, "; ")
    raise ArtifactError(
        f"the checkpoint was made by another optimizer: {difference}",
        place=str(path),
        fix="keep the optimizer (and train_only) as they were, or take only the weights, as the input of a new stage",
    )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "×".join(map(str, shape or ())) or "a number"
