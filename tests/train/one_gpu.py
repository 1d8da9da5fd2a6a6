"""Small runs of the real Trainer on one GPU: data from the step's number, a hook for the gradients, and a group of one rank.

Nothing here needs more than torch, numpy and pydantic.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import FileStore
from torch.distributed.tensor import DTensor

from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.batches import deal, split_rows
from ingot.train.config import TrainingConfig
from ingot.train.loop import Trainer
from ingot.train.losses.terms import CrossEntropy, ZLoss
from ingot.train.source import Source
from tests.making.stages import stage_folder

DEVICE, GROUPS = "cuda", "nccl"
VOCABULARY, LENGTH, ROWS = 512, 128, 8
ATTENTION: dict[str, Any] = {"heads": 2, "key_value_heads": 1, "head_width": 64}
DENSE: dict[str, Any] = {"mixer": ATTENTION, "feed_forward": {"width": 256}}
MOE: dict[str, Any] = {
    "mixer": {**ATTENTION, "query_key_norm": "head"},
    "feed_forward": {
        "kind": "moe",
        "experts": 8,
        "active": 2,
        "expert": {"width": 64},
        "shared": {"width": 64},
        "router": {"score": "sigmoid", "selection_bias": True, "renormalise": True},
        "balancers": [{"kind": "loss", "scope": "sequence", "coefficient": 0.01}, {"kind": "bias"}],
    },
}


class Rows(Source):
    """Steps of 8 rows of two sources in four micro-batches; a row is one document, or `packed` with uneven ones."""

    ahead, names = True, ("even", "odd")

    def __init__(self, packed: bool, length: int = LENGTH, rows: int = ROWS, vocabulary: int = VOCABULARY) -> None:
        self.packed, self.length, self.rows, self.vocabulary = packed, length, rows, vocabulary

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        batch = self._packed(random.Random(step)) if self.packed else self._whole(step)
        first = slice(self.rows)
        batch = Batch(
            batch.tokens[first],
            batch.targets[first],
            batch.positions[first],
            batch.documents[first],
            {name: stream[first] for name, stream in batch.streams.items()},
            torch.arange(self.rows) % 2,
        )
        return deal(split_rows(batch, 2), rank, world), {}

    def _whole(self, step: int) -> Batch:
        size = (self.rows, self.length + 1)
        ids = torch.randint(self.vocabulary, size, generator=torch.Generator().manual_seed(step))
        places = torch.arange(self.length).expand(self.rows, -1).contiguous()
        weight = {"weight": torch.ones(self.rows, self.length)}
        return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), places, torch.zeros_like(places), weight)

    def _packed(self, rng: random.Random) -> Batch:
        texts: list[Text] = []
        while sum(len(text.tokens) - 1 for text in texts) < (self.rows + 1) * self.length:
            tokens = [rng.randrange(self.vocabulary) for _ in range(rng.randint(2, self.length // 2))]
            texts.append(Text(tokens, {"weight": [float(rng.random() < 0.9) for _ in tokens]}))
        return make_batch(texts, self.length)


def build(block: Mapping[str, Any], layers: int = 2, **changes: Any) -> Transformer:
    """A model on the host, the same for the same shape."""
    parts = {"vocabulary_size": VOCABULARY, "width": 128, "blocks": {"layer": block}, "context": LENGTH}
    model = Transformer(ModelConfig.model_validate({**parts, "layers": f"layer*{layers}", **changes}))
    initialise(model, seed=3)
    return model


def configure(**changes: Any) -> TrainingConfig:
    parts = {"steps": 6, "sequence_length": LENGTH, "device": DEVICE, "optimizer": {"lr": 0.003, "epsilon": 1e-4}}
    return TrainingConfig.model_validate({**parts, **changes})


def make_trainer(
    model: Transformer, folder: Path, source: Source, kind: type[Trainer] = Trainer, **changes: Any
) -> Trainer:
    """Cross-entropy and z-loss; `changes` are those of the configuration."""
    stage = stage_folder(folder)
    return kind(model, [CrossEntropy(), ZLoss(1e-4)], source, configure(**changes), stage)


def losses_and_gradients(trainer: Trainer) -> tuple[list[float], list[dict[str, Tensor]]]:
    """Run it: the loss of every step, and its gradients on the host, whole."""
    gradients: list[dict[str, Tensor]] = []

    def keep(*_: object) -> None:
        found = {name: each.grad for name, each in trainer.trained if each.grad is not None}
        whole = {name: each.full_tensor() if isinstance(each, DTensor) else each for name, each in found.items()}
        gradients.append({name: each.detach().float().cpu().clone() for name, each in whole.items()})

    trainer.optimizer.register_step_pre_hook(keep)
    trainer.run()
    return [row["loss"] for row in trainer.folder.metrics.read()], gradients


def assert_same(
    found: tuple[list[float], list[dict[str, Tensor]]],
    expected: tuple[list[float], list[dict[str, Tensor]]],
    bound: float,
) -> None:
    """Losses within `bound`, and ‖difference‖ of every gradient of the first step within `bound` of its norm.

    Later gradients are those of weights that differ already, by a step of Adam that divides small numbers by small ones.
    """
    assert found[0] == pytest.approx(expected[0], rel=bound)
    for step, (here, there) in enumerate(zip(found[1], expected[1], strict=True)):
        assert here.keys() == there.keys() and len(there) > 5
        for name, gradient in there.items():
            distance = float((here[name] - gradient).norm() / gradient.norm().clamp(min=1e-6))
            assert distance < (bound if step == 0 else 100 * bound), f"step {step}: {name} is off by {distance:.1e}"


@contextmanager
def group_of_one(store: Path) -> Iterator[None]:
    """A process group of this process alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NCCL_SOCKET_IFNAME", "lo")  # there is no other machine to be found on the network
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        if DEVICE == "cuda":
            torch.cuda.set_device(0)
        distributed.init_process_group(GROUPS, store=FileStore(str(store), 1), rank=0, world_size=1)
        try:
            yield
        finally:
            distributed.destroy_process_group()
