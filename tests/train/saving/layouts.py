"""Runs in several layouts: one process, FSDP2 (with copies), tensor and expert parallel. The bodies of ranks."""

from __future__ import annotations

import random
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ingot.model.order import in_ranks_order, orders, whole
from ingot.model.transformer import Transformer
from ingot.train.config import TrainingConfig
from ingot.train.layouts.steps import fresh
from ingot.train.parallel.layout import Layout, make_layout
from ingot.train.prepare import prepare_model
from ingot.train.saving.saver import Saver
from tests.making.stages import stage_folder
from tests.train.parallel.models import DENSE, MOE, shape
from tests.train.toy import training_config

MODELS: dict[str, dict[str, Any]] = {"dense": DENSE, "moe": MOE}


MESHES: dict[str, dict[str, int]] = {
    "one": {},
    "fsdp": {},
    "tensor": {"tensor": 2},
    "both": {"shard": 2, "tensor": 2},
    "copies": {"replicate": 2, "shard": 2},
    "expert": {"shard": 4, "expert": 2},
}


def build(kind: str, config: TrainingConfig, seed: int) -> tuple[Transformer, Layout | None]:
    """A model divided as the mesh says, as the training loop does it."""
    device = torch.device("cpu")
    layout = make_layout(config.mesh, device)
    model = fresh(shape(MODELS[kind], layers=1), seed)
    return prepare_model(model, config, layout, device, torch.float32), layout


def update(model: Transformer, optimizer: torch.optim.Optimizer, step: int) -> None:
    """An update by a gradient that depends on the names and the step alone, whatever the layout."""
    known = orders(model)
    for name, each in model.named_parameters():
        generator = torch.Generator().manual_seed(random.Random(f"{name} {step}").randrange(2**31))
        gradient = in_ranks_order(torch.randn(each.shape, generator=generator), known.get(name))
        each.grad = like(gradient, each) if isinstance(each, DTensor) else gradient
    optimizer.step()
    optimizer.zero_grad()


def like(tensor: Tensor, divided: DTensor) -> DTensor:
    """This rank's shard of a tensor, divided like another."""
    mesh, placements = divided.device_mesh, divided.placements
    sizes, offsets = compute_local_shape_and_global_offset(divided.shape, mesh, placements)
    own = tensor[tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))]
    return DTensor.from_local(
        own.contiguous(), mesh, placements, run_check=False, shape=divided.shape, stride=divided.stride()
    )


def everything(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Weights, buffers and optimizer state, gathered, in the model's order."""
    known = orders(model)
    values = {name: whole(each.detach(), known.get(name)).clone() for name, each in model.state_dict().items()}
    for name, each in model.named_parameters():
        for part, value in optimizer.state[each].items():
            order = known.get(name) if isinstance(value, DTensor) else None
            values[f"{name}.{part}"] = whole(value.detach(), order).clone()
    return values


def start(kind: str, layout: str, path: Path, seed: int, **options: Any) -> tuple[Transformer, Any, Saver]:
    config = training_config(mesh=MESHES[layout], checkpoints=options)
    model, divided = build(kind, config, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    return model, optimizer, Saver(stage_folder(path), config.checkpoints, divided)


def save(kind: str, layout: str, path: Path, steps: int) -> dict[str, Tensor]:
    """Train some steps, save in the background while two more are made, and finish; returns the state at the save."""
    model, optimizer, saver = start(kind, layout, path, seed=3, keep_every=1)
    for step in range(steps):
        update(model, optimizer, step)
    saved = everything(model, optimizer)
    saver.save(steps, model, optimizer, {"tokens": 7})
    for step in range(steps, steps + 2):
        update(model, optimizer, step)
    saver.finish(model)
    return saved


def load(kind: str, layout: str, path: Path, steps: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Load into another model; returns the state then, and after two more steps."""
    model, optimizer, saver = start(kind, layout, path, seed=4, keep_every=1)
    training = saver.restore(model, optimizer)
    assert training == {"step": steps, "tokens": 7}
    loaded = everything(model, optimizer)
    for step in range(steps, steps + 2):
        update(model, optimizer, step)
    return loaded, everything(model, optimizer)


def save_with_a_failing_rank(path: Path) -> list[str]:
    """Rank 1 cannot hash its files in the second save; what each rank says at the next call."""
    model, optimizer, saver = start("dense", "fsdp", path, seed=3)
    update(model, optimizer, 0)
    saver.save(1, model, optimizer, {})
    saver.wait()
    if distributed.get_rank() == 1:
        from ingot.train.saving import write

        def fail(*_: object) -> dict[str, str]:
            raise OSError("the disk is full")

        setattr(write, "digests", fail)  # noqa: B010 - it is an import of that module
    saver.save(2, model, optimizer, {})
    try:
        saver.wait()
    except Exception as error:  # noqa: BLE001 - its text is what is tested
        return [str(error)]
    return []


def restore_around_damage(path: Path) -> tuple[int, list[str]]:
    """The step that is restored, and what was said."""
    from tests.making.stages import Listener

    model, optimizer, saver = start("dense", "fsdp", path, seed=4)
    listener = Listener()
    saver.folder.progress = listener
    training = saver.restore(model, optimizer)
    assert training is not None
    return training["step"], listener.lines


def save_without_the_other_rank(path: Path) -> str:
    """Rank 1 does not come to the save: what rank 0 is told when the deadline has passed."""
    from ingot.train.saving import ranks

    ranks.DEADLINE = timedelta(seconds=2)
    model, optimizer, saver = start("dense", "fsdp", path, seed=3)
    update(model, optimizer, 0)
    if distributed.get_rank() == 1:
        time.sleep(6)
        return ""
    saver.save(1, model, optimizer, {})
    try:
        saver.wait()
    except RuntimeError as error:
        return str(error)
    return "nothing went wrong"
