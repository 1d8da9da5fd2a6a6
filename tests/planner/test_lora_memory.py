"""The plan of a stage with adapters: its bytes are those of the real model and of the real optimizer after a step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model, save_checkpoint
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.optim.build import make_optimizer
from ingot.planner.hardware import GPUS
from ingot.planner.memory import memory
from ingot.planner.shape import shape_of
from ingot.post.sft_config import SftConfig
from ingot.train.lora import adapt, rows_optimizer
from ingot.train.parallel.config import MeshConfig
from tests.train.parallel.models import MOE, shape

ONE = MeshConfig(shard=1)


def stage(**options: Any) -> SftConfig:
    return SftConfig.model_validate({"steps": 1, "sequence_length": 64, "files": ["mine.jsonl"], **options})


@pytest.mark.parametrize("block", ["dense", "mixture"])
@pytest.mark.parametrize(
    "lora",
    [{"rank": 4}, {"base": "nf4"}, {"base": "int4"}, {"base": "bfloat16"}, {"rank": 4, "train_rows": (1, 2)}],
    ids=str,
)
def test_the_plan_counts_the_bytes_that_are_there(block: str, lora: dict[str, Any], tmp_path: Path) -> None:
    dense = {"mixer": {"heads": 4, "key_value_heads": 2, "head_width": 16}, "feed_forward": {"width": 192}}
    mixture = {**MOE, "feed_forward": {**MOE["feed_forward"], "shared": {"width": 32}}}
    model_config = shape(mixture if block == "mixture" else dense, width=64)
    config = stage(lora=lora)
    save_checkpoint(tmp_path / "base", Transformer(model_config))
    model = load_model(tmp_path / "base")
    adapt(model, None, config.lora, tmp_path / "base", 0)
    optimizer = make_optimizer(model, rows_optimizer(config.optimizer, model))
    model(torch.zeros(1, 8, dtype=torch.long)).sum().backward()
    optimizer.step()
    planned = memory(shape_of(model_config), config, ONE, GPUS["h200"].memory)
    held = [*model.parameters(), *(each for name, each in model.named_buffers() if ".frozen." in name)]
    moments = [each for state in optimizer.state.values() for each in state.values() if each.dim()]
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    assert planned.weights == _bytes(held)
    assert planned.gradients == _bytes(gradients)
    assert planned.optimizer == _bytes(moments)


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def test_qlora_of_a_large_model_fits_where_training_it_does_not() -> None:
    """Llama 3.1 8B: QLoRA's paper puts 7B models on cards of 24 GB and below; all weights with Adam take 16 bytes each."""
    block = {"mixer": {"heads": 32, "key_value_heads": 8, "head_width": 128}, "feed_forward": {"width": 14336}}
    llama = ModelConfig.model_validate(
        {"vocabulary_size": 128256, "width": 4096, "layers": "layer*32", "blocks": {"layer": block}, "context": 2048,
         "tied_embeddings": False}
    )  # fmt: skip
    sizes = {}
    for name, lora in (("all", None), ("lora", {}), ("nf4", {"base": "nf4"})):
        config = stage(lora=lora, sequence_length=2048, micro_batch_tokens=2048, activations={"keep": "blocks"})
        sizes[name] = memory(shape_of(llama), config, ONE, GPUS["h200"].memory).total / 2**30
    assert sizes["all"] > 110 and 40 < sizes["lora"] < 60 and sizes["nf4"] < 16
