"""What `precision: float8` keeps on each rank of tensor parallelism, against the tensors that a pass of training saves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from ingot.planner.hardware import GPUS, reached
from ingot.planner.memory import memory
from ingot.planner.shape import shape_of
from ingot.planner.speed import step_speed
from ingot.train import float8
from ingot.train.layouts.steps import uneven
from ingot.train.parallel.config import MeshConfig
from tests.planner.test_memory import DEVICE, llama, stage
from tests.train.parallel.models import shape
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.reference import loss_of
from tests.train.parallel.test_tensor import divided, varied

SMALLEST = 48
MODEL = shape(
    {"mixer": {"heads": 8, "key_value_heads": 4, "head_width": 8}, "feed_forward": {"width": 96}}, 2, width=64
)
"""Half of the matrix after the mixing has 32 columns, which are too few; the other halves are large enough."""


def saved_bytes(tensor: int) -> int:
    """The float8 numbers that wait for the backward pass of a model on this rank."""
    found = dict[int, int]()

    def note(saved: Tensor) -> Tensor:
        if saved.dtype == torch.float8_e4m3fn:
            found[saved.untyped_storage().data_ptr()] = saved.numel()
        return saved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(float8, "SMALLEST", SMALLEST)
        model = varied(MODEL) if tensor == 1 else divided(MODEL, MeshConfig(tensor=tensor))[0]
        float8.use_float8(model, "tensor")
        with torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept):
            loss = loss_of(model, uneven(0))
        loss.backward()
    return sum(found.values())


def test_copies_on_each_rank_are_those_that_training_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float8, "SMALLEST", SMALLEST)
    (block,) = shape_of(MODEL).blocks
    tokens = -(-uneven(0).tokens.numel() // float8.ALIGNED) * float8.ALIGNED

    def planned(tensor: int) -> int:
        rounded = block.float8(tensor)
        return 2 * (rounded.parameters + tokens * (rounded.stream + rounded.left + rounded.inner))

    ranks = run_ranks(2, saved_bytes, tmp_path / "store", 2)
    assert saved_bytes(1) == planned(1)
    assert ranks == [planned(2)] * 2
    assert block.float8(1).left == 64 and block.float8(2).left == 0


def test_a_part_that_is_too_small_is_planned_in_bfloat16() -> None:
    """On 32 ranks no part of this model's matrices has 1,024 rows and columns: neither less memory nor more speed."""
    plain, rounded = (
        stage(llama(), 8, 4096, precision=precision, activations={"keep": "all"})
        for precision in ("bfloat16", "float8")
    )
    gpu, whole = GPUS["h200"], shape_of(llama())
    for tensor, same in ((1, False), (32, True)):
        mesh = MeshConfig(tensor=tensor, shard=1)
        bytes_of = [memory(whole, config, mesh, DEVICE).total for config in (plain, rounded)]
        seconds = [step_speed(whole, config, mesh, gpu, reached(gpu)).compute for config in (plain, rounded)]
        assert (bytes_of[0] == bytes_of[1]) == same == (seconds[0] == seconds[1]), tensor
