"""Muon and AdamW on sharded parameters: after three steps every layout holds what one process holds.

Gradients are drawn, not computed: each rank gets its shard of the same ones, as after the reduction of a backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ingot.model.order import in_ranks_order, orders, whole
from ingot.model.transformer import Transformer
from ingot.optim import newton_schulz
from ingot.optim.build import make_optimizer
from ingot.optim.config import MuonConfig
from ingot.train.layouts.steps import fresh
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.layout import Layout, make_layout
from ingot.train.parallel.tensor import apply_tensor_parallel
from tests.train.parallel.models import MLA, MOE, shape
from tests.train.parallel.ranks import run_ranks

MODELS = {"moe": shape(MOE, layers=2), "mla": shape(MLA, layers=2)}
MUON = MuonConfig.model_validate({"kind": "muon", "lr": 0.02, "split_heads": True, "rest_lr": 0.01})
ONE = MeshConfig()


def make_model(name: str, mesh: MeshConfig, seed: int = 3) -> Transformer:
    """The model as a run with this mesh holds it. With `expert`, experts lie over one axis and their rows over another."""
    model = fresh(MODELS[name], seed)
    layout = make_layout(mesh, torch.device("cpu"))
    if layout is None:
        return model
    apply_tensor_parallel(model, layout)
    if mesh.expert > 1:
        cut_experts(model, layout)
    elif layout.size("replicate", "shard") > 1:
        data = layout.mesh["replicate", "shard"] if mesh.replicate > 1 else layout.mesh["shard"]
        for block in model.blocks:
            fully_shard(block, mesh=data)
        fully_shard(model, mesh=data)
    return model


def cut_experts(model: Transformer, layout: Layout) -> None:
    mesh = layout.mesh["replicate", "shard"]
    for name, parameter in list(model.named_parameters()):
        placements = [Shard(0), Shard(1)] if ".experts." in name else [Replicate(), Shard(0)]
        path, _, last = name.rpartition(".")
        divided = nn.Parameter(distribute_tensor(parameter.detach(), mesh, placements))
        setattr(model.get_submodule(path), last, divided)


def take_steps(model: Transformer, optimizer: torch.optim.Optimizer, steps: range) -> None:
    order = orders(model)
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for name, parameter in sorted(model.named_parameters()):
            gradient = in_ranks_order(torch.randn(parameter.shape, generator=generator), order.get(name))
            if isinstance(parameter, DTensor):
                gradient = distribute_tensor(gradient, parameter.device_mesh, parameter.placements)
            parameter.grad = gradient
        optimizer.step()


def everything(model: Transformer) -> dict[str, Tensor]:
    order = orders(model)
    return {name: whole(each.detach(), order.get(name)) for name, each in model.named_parameters()}


def states(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}


def begin(name: str, mesh: MeshConfig, folder: Path | None = None) -> dict[str, Tensor]:
    """Two steps, a checkpoint if there is a folder, and one more step."""
    model = make_model(name, mesh)
    optimizer = make_optimizer(model, MUON)
    take_steps(model, optimizer, range(2))
    if folder is not None:
        checkpoint.save(states(model, optimizer), checkpoint_id=folder)  # type: ignore[attr-defined]
    take_steps(model, optimizer, range(2, 3))
    return everything(model)


def resume(name: str, mesh: MeshConfig, folder: Path) -> dict[str, Tensor]:
    """The third step from the checkpoint."""
    model = make_model(name, mesh, seed=9)
    optimizer = make_optimizer(model, MUON)
    state = states(model, optimizer)
    checkpoint.load(state, checkpoint_id=folder)  # type: ignore[attr-defined]
    set_model_state_dict(model, state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    take_steps(model, optimizer, range(2, 3))
    return everything(model)


FOUR = {
    "shards": ("moe", MeshConfig(shard=4)),
    "copies of shards": ("moe", MeshConfig(replicate=2, shard=2)),
    "experts": ("moe", MeshConfig(replicate=2, shard=2, expert=2)),
    "shards and tensor": ("moe", MeshConfig(shard=2, tensor=2)),
    "latent, shards and tensor": ("mla", MeshConfig(shard=2, tensor=2)),
}
SAVED = "copies of shards"
FAST = (SAVED, "experts", "latent, shards and tensor")


def begin_all(keys: Sequence[str], folder: Path) -> dict[str, dict[str, Tensor]]:
    """Layouts of four ranks, one after the other: starting processes takes longer than all else."""
    return {key: begin(*FOUR[key], folder / key if key == SAVED else None) for key in keys}


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    """What every rank holds after three steps in the layouts of FAST, and the folder with the checkpoints."""
    folder = tmp_path_factory.mktemp("four")
    return run_ranks(4, begin_all, folder / "store", FAST, folder), folder


def assert_equal(values: dict[str, Any], name: str) -> None:
    right = begin(name, ONE)
    assert values.keys() == right.keys()
    for key, value in right.items():
        torch.testing.assert_close(torch.as_tensor(values[key]), value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("key", FAST)
def test_every_layout_takes_the_steps_of_one_process(key: str, four: tuple[list[dict[str, Any]], Path]) -> None:
    for rank in four[0]:
        assert_equal(rank[key], FOUR[key][0])


@pytest.mark.slow
def test_more_layouts_take_the_steps_of_one_process(tmp_path: Path) -> None:
    keys = [key for key in FOUR if key not in FAST]
    for rank in run_ranks(4, begin_all, tmp_path / "store", keys, tmp_path):
        for key in keys:
            assert_equal(rank[key], FOUR[key][0])


def on_two(folder: Path) -> tuple[dict[str, Tensor], list[int]]:
    """The checkpoint of two copies of two shards goes on with two; and how many matrices this rank has in two layouts."""
    layouts = MeshConfig(shard=2), MeshConfig(replicate=2, shard=1)
    return resume("moe", MeshConfig(shard=2), folder), [count_matrices(mesh) for mesh in layouts]


def count_matrices(mesh: MeshConfig) -> int:
    """How many matrices this rank orthogonalises in one step."""
    counted: list[int] = []
    original = newton_schulz._normalised

    def counting(x_NRC: Tensor, unit: float, margin: float) -> Tensor:
        counted.append(len(x_NRC))
        return original(x_NRC, unit, margin)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newton_schulz, "_normalised", counting)
        model = make_model("moe", mesh)
        take_steps(model, make_optimizer(model, MUON), range(1))
    return sum(counted)


def test_two_processes_go_on_and_each_has_half_of_the_work(
    four: tuple[list[dict[str, Any]], Path], tmp_path: Path
) -> None:
    """Each of the two layers: 8 heads, output, router, and gate, up and down of the shared expert and of 8 experts."""
    for values, counts in run_ranks(2, on_two, tmp_path / "store", four[1] / SAVED):
        assert_equal(values, "moe")
        assert counts == [8 + 1 + 1 + 3 + 3 * 8] * 2


def test_one_process_goes_on(four: tuple[list[dict[str, Any]], Path]) -> None:
    assert_equal(resume("moe", ONE, four[1] / SAVED), "moe")
