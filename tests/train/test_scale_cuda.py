"""What runs on many GPUs, on one: sharded weights with NCCL, recomputation by budget, checkpoints from GPU memory, the doctor.

A mesh of one rank is forced upon the code that leaves meshes of one out. FSDP2 itself gathers nothing among one rank, but its
streams, its mixed precision and its all-reduce over copies run, and all sums of our own go through NCCL.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.planner import stress
from ingot.planner.dry_run import dry_run
from ingot.train import loop, prepare
from ingot.train.loop import Trainer
from ingot.train.parallel import apply, expert, shard
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.layout import AXES, Layout, Name
from ingot.train.passes import Objective
from ingot.train.pretrain_config import PretrainConfig
from ingot.train.saving.config import CheckpointsConfig
from ingot.train.saving.saver import Saver
from ingot.workspace.files import read_json
from tests.making.stages import stage_folder
from tests.train import one_gpu
from tests.train.one_gpu import DENSE, MOE, Rows, assert_same, build, group_of_one, losses_and_gradients, make_trainer
from tests.train.test_cuda_step import FREE, STEPS, Watched

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or not torch.cuda.is_bf16_supported(), reason="needs a CUDA device with bfloat16"
)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No compiled code and no budget from test to test."""
    torch._dynamo.reset()
    with torch._functorch.config.patch(activation_memory_budget=1.0):
        yield
    torch._dynamo.reset()


# ---- a mesh of one


class Forced(Layout):
    """Talks to its one rank where a layout usually sees that there is no need to."""

    def sum_over(self, tensor: Tensor, *axes: str) -> Tensor:
        for axis in axes:
            distributed.all_reduce(tensor, group=self.mesh[axis].get_group())
        return tensor

    def max_over(self, tensor: Tensor, *axes: str) -> Tensor:
        for axis in axes:
            distributed.all_reduce(tensor, distributed.ReduceOp.MAX, group=self.mesh[axis].get_group())
        return tensor

    def union(self, names: Iterable[Name], axis: str) -> list[Name]:
        found: list[Any] = [None]
        distributed.all_gather_object(found, list(names), group=self.mesh[axis].get_group())
        return list(found[0])


def force_mesh(patch: pytest.MonkeyPatch, *, copies: bool, experts: bool) -> None:
    """The trainer's layout is one of a single rank; its weights are sharded over it, with copies or without."""

    def layout(config: MeshConfig, device: torch.device) -> Layout:
        return Forced(config, init_device_mesh(device.type, (1,) * len(AXES), mesh_dim_names=AXES))

    def divide(model: Transformer, layout: Layout) -> None:
        apply.divide_parts(model, layout)
        if experts:
            expert.apply_expert_parallel(model, layout)

    if copies:
        patch.setattr(shard, "shard_mesh", lambda layout: layout.mesh["replicate", "shard"])
    patch.setattr(loop, "make_layout", layout)
    patch.setattr(prepare, "divide_parts", divide)
    patch.setattr(prepare, "shard_weights", shard.shard_model)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with group_of_one(tmp_path_factory.mktemp("group") / "store"):
        assert distributed.get_backend() == one_gpu.GROUPS
        yield


BLOCKS = {"dense": DENSE, "experts": MOE}
MESHES = {"none": None, "shard": (False, False), "copies": (True, False), "experts": (False, True)}
SHAPED = [
    ("dense", "shard", "float32"),
    ("experts", "none", "float32"),
    ("experts", "copies", "bfloat16"),
    ("experts", "experts", "bfloat16"),
]


@pytest.mark.parametrize(("block", "mesh", "precision"), SHAPED)
def test_compiled_blocks_on_a_mesh_of_one_change_no_number(
    block: str, mesh: str, precision: str, group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of eager blocks without a mesh, and of compiled ones with one of one rank.

    In bfloat16, the first step of both beside eager blocks in float32: compiled code rounds at other places, so that routers
    choose differently here and there, and neither is exact. Of uneven documents, but for compiled blocks in float32: there every
    list of documents is compiled anew.
    """
    source = Rows(packed=precision == "bfloat16")
    options: dict[str, Any] = {"steps": 3, "precision": precision}
    plain = make_trainer(build(BLOCKS[block]), tmp_path / "plain", source, compile="off", **options)
    expected = losses_and_gradients(plain)
    exact = expected
    if precision == "bfloat16":
        wide = {**options, "precision": "float32", "compile": "off"}
        exact = losses_and_gradients(make_trainer(build(BLOCKS[block]), tmp_path / "exact", source, **wide))
    parts = MESHES[mesh]
    if parts is not None:
        force_mesh(monkeypatch, copies=parts[0], experts=parts[1])
    trainer = make_trainer(build(BLOCKS[block]), tmp_path / "mesh", source, compile="blocks", **options)
    if parts is not None:
        assert trainer.layout is not None and all(isinstance(each, DTensor) for _, each in trainer.trained)
    found = losses_and_gradients(trainer)
    if precision == "float32":
        assert_same(found, expected, 1e-5)
        return
    assert found[0][0] == pytest.approx(exact[0][0], rel=1e-3)
    here, usual = (errors(gradients[0], exact[1][0]) for _, gradients in (found, expected))
    assert max(usual.values()) < 0.2, usual  # rounding, not another model
    assert all(error < 2 * usual[name] + 1e-3 for name, error in here.items()), (here, usual)


def errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """‖difference‖ of every gradient in parts of its norm."""
    assert found.keys() == exact.keys() and len(exact) > 5
    return {name: float((found[name] - each).norm() / each.norm().clamp(min=1e-6)) for name, each in exact.items()}


def test_a_sharded_step_waits_for_nothing_either(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    force_mesh(monkeypatch, copies=True, experts=False)
    options: dict[str, Any] = {"steps": STEPS, "compile": "off", "precision": "bfloat16"}
    trainer = make_trainer(build(MOE), tmp_path, Rows(True), Watched, **options)
    trainer.run()
    assert isinstance(trainer, Watched) and trainer.watched == STEPS - FREE


def test_a_budget_keeps_less_and_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the forward pass holds for the backward one, in the first pass of a run."""
    found: dict[str, Any] = {}
    kept: dict[str, int] = {}
    for keep in ("all", "budget"):
        torch._dynamo.reset()
        options: dict[str, Any] = {"steps": 2, "compile": "blocks", "precision": "float32"}
        options["activations"] = {"keep": keep} | ({"budget": 0.1} if keep == "budget" else {})
        model, source = build(DENSE, layers=8, context=1024), Rows(False, length=1024, rows=8)
        trainer = make_trainer(model, tmp_path / keep, source, sequence_length=1024, **options)
        before, held = torch.cuda.memory_allocated(), list[int]()

        class Holding(Objective):
            def loss(self, *arguments: Any, held: list[int] = held) -> Tensor:
                held.append(torch.cuda.memory_allocated())
                return super().loss(*arguments)

        monkeypatch.setattr(trainer.passes.objective, "__class__", Holding)
        found[keep] = losses_and_gradients(trainer)
        kept[keep] = held[0] - before
        del trainer, model
    assert_same(found["budget"], found["all"], 1e-5)
    assert kept["budget"] < 0.5 * kept["all"], kept


# ---- checkpoints


def test_a_checkpoint_written_behind_is_the_one_written_at_once(tmp_path: Path) -> None:
    """Both of the same moment of one run, which goes on while the first is copied and written; a state of 100 MB."""
    at_once = Saver(stage_folder(tmp_path / "at once"), CheckpointsConfig(asynchronous=False), None)

    class Twice(Trainer):
        def _save(self, step: int, last: dict[str, Any]) -> None:
            if step == 2:
                self.saver, usual = at_once, self.saver
                super()._save(step, last)
                self.saver = usual
            super()._save(step, last)

    model = build(DENSE, layers=1, vocabulary_size=32_768, width=256)
    source = Rows(False, length=32, rows=2, vocabulary=32_768)
    checkpoints = {"every": 2, "keep_every": 2}
    options: dict[str, Any] = {"steps": 6, "precision": "bfloat16", "compile": "off", "checkpoints": checkpoints}
    make_trainer(model, tmp_path / "behind", source, Twice, **options).run()
    behind, once = (
        read_json(tmp_path / name / "steps" / "step-0000002" / "manifest.json") for name in ("behind", "at once")
    )
    for manifest in (behind, once):
        del manifest["state/.metadata"]  # torch writes the folder's name and a random number into it
    assert len(once) >= 3 and behind == once
    later = read_json(tmp_path / "behind" / "steps" / "step-0000004" / "manifest.json")
    assert later["state/__0_0.distcp"] != once["state/__0_0.distcp"], "the run went on"


# ---- the doctor


def test_the_doctor_stresses_the_device() -> None:
    """A healthy device passes: products that repeat to the bit, memory that keeps what it got, and a look at the clocks."""
    checks = {check.name: check for check in stress.stress_devices()}
    products, memory = checks["cuda:0 products"], checks["cuda:0 memory"]
    assert products.status != "fail" and "TFLOP/s" in products.text, products
    assert memory.status == "ok" and "nothing changed" in memory.text, memory
    clocks = [check for name, check in checks.items() if name.endswith("clocks")]
    assert all("MHz" in check.text for check in clocks), clocks


def test_the_doctor_sees_broken_memory_and_broken_products(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 0)
    monkeypatch.setattr(stress, "GPU_MEMORY_SHARE", 0.01)
    fill, product = Tensor.fill_, Tensor.__matmul__
    calls: list[int] = []

    def torn(tensor: Tensor, value: int) -> Tensor:
        fill(tensor, value)
        tensor[17] += 1
        return tensor

    def unsteady(left: Tensor, right: Tensor) -> Tensor:
        calls.append(1)
        result = product(left, right)
        if len(calls) == 3:
            result[0, 0] = 1e4
        return result

    monkeypatch.setattr(Tensor, "fill_", torn)
    size, changed = stress.measure_memory(device)
    assert changed >= 2 and stress.judge_memory((size, changed), "cuda:0").status == "fail"
    monkeypatch.setattr(Tensor, "__matmul__", unsteady)
    assert not stress.measure_products(device, seconds=0.1).repeatable


def test_the_doctors_step_runs_on_the_device() -> None:
    """In a process of its own, with the memory that it took."""
    model = ModelConfig.model_validate(
        {
            "vocabulary_size": 2048,
            "width": 256,
            "blocks": {
                "layer": {"mixer": {"heads": 4, "key_value_heads": 4, "head_width": 64}, "feed_forward": {"width": 512}}
            },
            "layers": "layer*2",
            "context": 256,
        }
    )
    config = PretrainConfig.model_validate(
        {
            "model": model.model_dump(mode="json"),
            "sequence_length": 256,
            "batch_tokens": 2048,
            "micro_batch_tokens": 1024,
            "steps": 1,
            "compile": "off",
            "phases": [{"until": 1.0, "weights": {"all": 1.0}}],
        }
    )
    outcome = dry_run(model, config, deadline=240.0)
    assert outcome.error is None and outcome.device == one_gpu.DEVICE, outcome
    assert outcome.loss == pytest.approx(math.log(2048), rel=0.1)
    weights = sum(math.prod(each.shape) for each in Transformer(model).parameters()) * 4
    assert outcome.peak_bytes > 3 * weights, "weights and two moments at least"
