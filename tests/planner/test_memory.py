"""Memory of training: sizes against torch's own modules and optimizers, activations against what autograd saves, the whole
against readings of one H200."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ingot.model.block import Block
from ingot.model.config import ModelConfig
from ingot.model.context import Context
from ingot.model.mixers.mixer import Site
from ingot.model.transformer import Transformer
from ingot.planner.cost import pass_tokens
from ingot.planner.hardware import GIB, GPUS
from ingot.planner.memory import DeviceMemory, memory, rows_per_pass
from ingot.planner.shape import shape_of
from ingot.post.distill.config import DistillConfig
from ingot.post.prefer_config import PreferConfig
from ingot.post.rl.config import RlConfig
from ingot.post.sft_config import SftConfig
from ingot.train.config import TrainingConfig
from ingot.train.parallel.config import MeshConfig
from ingot.train.pretrain_config import PretrainConfig

ONE = MeshConfig(shard=1)
DEVICE = GPUS["h200"].memory
LLAMA = {
    "vocabulary_size": 128256,
    "width": 2048,
    "layers": "layer*16",
    "blocks": {
        "layer": {"mixer": {"heads": 32, "key_value_heads": 8, "head_width": 64}, "feed_forward": {"width": 8192}}
    },
}


def stage(model: ModelConfig, rows: int, length: int, **options: Any) -> PretrainConfig:
    """A pre-training stage of one pass of `rows` rows a step."""
    tokens = {"micro_batch_tokens": rows * length, "batch_tokens": rows * length}
    return PretrainConfig.model_validate(
        {
            "steps": 10,
            "sequence_length": length,
            "phases": [{"until": 1.0, "weights": {"all": 1.0}}],
            "model": model,
            **tokens,
            **options,
        }
    )


def llama() -> ModelConfig:
    return ModelConfig.model_validate(LLAMA)


@pytest.mark.parametrize(
    "preset", ["qwen3-8b-mini", "nemotron-h-8b-mini", "kimi-k2-mini", "gemma2-2b-mini", "qwen3-next-80b-a3b-mini"]
)
def test_sizes_are_those_of_the_built_model(preset: str) -> None:
    model = ModelConfig.model_validate({"preset": preset, "vocabulary_size": 512})
    with torch.device("meta"):
        built = Transformer(model)
    named = {name: each for name, each in built.named_parameters() if not name.startswith("multi_token.")}
    shape = shape_of(model.model_copy(update={"multi_token": None}))
    assert shape.parameters == sum(each.numel() for each in named.values())
    assert shape.expert_parameters == sum(each.numel() for name, each in named.items() if ".experts." in name)


def saved_values(function: Any, x: Tensor) -> int:
    """Numbers that autograd keeps for the backward pass, each storage once, parameters left out."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point():
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = function(x)
    output.sum().backward()
    return sum(kept.values())


@pytest.mark.slow  # torch's partitioner takes its time
def test_activations_against_what_torch_keeps() -> None:
    """A block compiled by torch (its partitioner chooses what to keep) keeps what is estimated; checkpointed, its input."""
    torch._dynamo.reset()
    length = 64
    model = ModelConfig.model_validate(
        {
            "vocabulary_size": 64,
            "width": 64,
            "layers": "layer",
            "blocks": {
                "layer": {"mixer": {"heads": 4, "key_value_heads": 2, "head_width": 16}, "feed_forward": {"width": 96}}
            },
        }
    )
    block, tokens = Block(model.block(0), Site(64, 0, 1, model.norm)), 2 * length
    x = torch.randn(2, length, 64, requires_grad=True)
    context = Context(torch.arange(length).expand(2, length), torch.zeros(2, length, dtype=torch.long))
    compiled = torch.compile(block, backend="aot_eager_decomp_partition")
    whole = saved_values(lambda x: compiled(x, context), x) / tokens
    (shape,) = shape_of(model).blocks
    assert shape.kept("all") == 4 * 64 + (64 + 2 * 32) + 64 + 3 * 96
    assert shape.kept("products") == 3 * 64 + (64 + 2 * 32) + 64 + 2 * 96
    assert (
        0.88 < shape.kept("all") / whole < 1
    )  # on a CPU the mixer's output is kept in two layouts, and the angles are kept
    entered = saved_values(lambda x: checkpoint(lambda x: block(x, context), x, use_reentrant=False), x) / tokens
    assert entered < 2 * 64  # D per token, and nothing that grows with the inner width


def test_optimizer_state_against_torch() -> None:
    shape = shape_of(llama())
    layer = torch.nn.Linear(32, 16, bias=False)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.randn(4, 32)).sum().backward()
    optimizer.step()
    (state,) = optimizer.state.values()
    moments = sum(value.numel() * value.element_size() for name, value in state.items() if name != "step")
    per_parameter = moments / layer.weight.numel()
    adamw = memory(shape, stage(llama(), 8, 4096), ONE, DEVICE)
    assert adamw.optimizer == pytest.approx(per_parameter * shape.parameters, rel=1e-9)
    muon = memory(shape, stage(llama(), 8, 4096, optimizer={"kind": "muon"}), ONE, DEVICE)
    embedding, matrices = 128256 * 2048, 16 * (2048 * 3072 + 2048 * 2048 + 3 * 2048 * 8192)
    assert muon.optimizer == pytest.approx(4 * matrices + 8 * (shape.parameters - matrices), rel=1e-9)
    assert shape.parameters == embedding + matrices + (2 * 16 + 1) * 2048


def test_a_mesh_divides_by_hand() -> None:
    model = llama()
    shape = shape_of(model)
    config = stage(model, 1, 8192, batch_tokens=64 * 8192)
    whole = memory(shape, config, ONE, DEVICE)
    sharded = memory(shape, config, MeshConfig(shard=4, tensor=2, context=2), DEVICE)
    parameters = (shape.block_parameters + shape.embedding) / 2 + shape.width  # both tensor ranks have the norm
    assert sharded.weights == sharded.gradients == pytest.approx(4 * parameters / 8, rel=1e-6)
    assert sharded.optimizer == pytest.approx(8 * parameters / 8, rel=1e-6)
    (block,) = shape.blocks
    inside = block.kept("all") - 4 * 2048
    one, half = 2 * 8192 * block.kept("all"), 2 * 4096 * (4 * 2048 + inside / 2)  # bytes of one block
    assert (
        one < 2 * 8192 * 128_256 and half < 2 * 4096 * 128_256 / 2
    )  # its gradient needs less than the logits before it
    assert sharded.activations == pytest.approx(16 * half, rel=1e-6)
    assert whole.activations == pytest.approx(16 * one, rel=1e-6)
    large = memory(shape, stage(model, 8, 8192, batch_tokens=64 * 8192), ONE, DEVICE)  # and here more
    assert large.activations == pytest.approx(8 * 17 * one - DEVICE / 32, rel=1e-6)
    staged = memory(shape, config, MeshConfig(shard=1, pipeline=4), DEVICE)
    assert staged.weights == pytest.approx(4 * (shape.block_parameters / 4 + shape.embedding), rel=1e-5)
    assert staged.activations == pytest.approx(4 * 4 * one, rel=1e-6)  # four passes in flight of four layers


def test_gradients_of_a_single_pass_take_the_place_of_activations() -> None:
    model = llama()
    once = memory(shape_of(model), stage(model, 8, 4096), ONE, DEVICE)
    twice = memory(shape_of(model), stage(model, 8, 4096, batch_tokens=16 * 4096), ONE, DEVICE)
    assert once.gradients == 0
    assert twice.gradients == pytest.approx(4 * shape_of(model).parameters, rel=1e-6)
    little = memory(shape_of(model), stage(model, 1, 128), ONE, DEVICE)
    assert 0 < little.gradients < 4 * shape_of(model).parameters


@pytest.mark.parametrize(
    ("kind", "options", "rows"),
    [
        (SftConfig, {"batch_conversations": 5}, 5),
        (PreferConfig, {"batch_pairs": 3}, 6),
        (RlConfig, {"prompts_per_step": 2, "group": 4}, 8),
        (DistillConfig, {"prompts_per_step": 7}, 7),
    ],
)
def test_a_pass_has_no_more_rows_than_its_step(kind: type[TrainingConfig], options: dict[str, int], rows: int) -> None:
    """A text takes a row at the most, however much a pass could hold; processes share them."""
    config = kind.model_validate({"steps": 1, "sequence_length": 64, "micro_batch_tokens": 1024} | options)
    assert (rows_per_pass(config, 1), pass_tokens(config)) == (rows, 64 * rows)
    assert rows_per_pass(config, 4) == -(-rows // 4)
    small = config.model_copy(update={"micro_batch_tokens": 128})
    assert (rows_per_pass(small, 1), pass_tokens(small)) == (2, 128)


def test_what_is_kept_orders_the_memory() -> None:
    model = llama()
    totals = [
        memory(shape_of(model), stage(model, 8, 4096, activations=keep), ONE, DEVICE).total
        for keep in ({"keep": "all"}, {"keep": "products"}, {"keep": "budget", "budget": 0.5}, {"keep": "blocks"})
    ]
    assert totals == sorted(totals, reverse=True)
    assert DeviceMemory(1, 2, 3, 4, 5, 6, 7).total == 28


def test_what_float8_saves_by_hand() -> None:
    """Normed streams and the gated product are kept no more; by tensor one byte of each instead, and of the mixing's result."""
    (block,) = shape_of(llama()).blocks
    assert block.saved_by_float8("row") == 2 * (2 * 2048 + 8192)
    assert block.saved_by_float8("tensor") == 2 * (2 * 2048 + 8192) - (2 * 2048 + 8192 + 2048)
    assert block.float8().parameters == 2048 * 3072 + 2048 * 2048 + 3 * 2048 * 8192
    config = {"precision": "float8", "activations": {"keep": "products"}}
    again, plain = (
        memory(shape_of(llama()), stage(llama(), 8, 4096, **options), ONE, DEVICE)
        for options in (config, {"activations": {"keep": "products"}})
    )
    assert again == plain
    (routed,) = shape_of(mixture()).blocks
    assert routed.float8().inner == 0 and routed.float8().left == 2048, "experts stay in bfloat16"
    (narrow,) = shape_of(small(2048)).blocks
    assert narrow.float8().parameters == narrow.saved_by_float8("row") == 0, "matrices of 768 rows stay in bfloat16"


def small(inner: int) -> ModelConfig:
    block = {"mixer": {"heads": 12, "key_value_heads": 12, "head_width": 64}, "feed_forward": {"width": inner}}
    given = {"vocabulary_size": 50_304, "width": 768, "layers": "layer*12", "blocks": {"layer": block}}
    return ModelConfig.model_validate(given)


def mixture() -> ModelConfig:
    experts = {
        "kind": "moe",
        "experts": 64,
        "active": 8,
        "expert": {"width": 768},
        "shared": {"width": 768},
        "router": {"score": "sigmoid", "selection_bias": True, "renormalise": True},
        "balancers": [{"kind": "bias"}],
    }
    block = {"mixer": {"heads": 16, "key_value_heads": 4, "head_width": 128}, "feed_forward": experts}
    given = {"vocabulary_size": 50_304, "width": 2048, "layers": "layer*16", "blocks": {"layer": block}}
    return ModelConfig.model_validate(given)


@pytest.mark.parametrize(
    ("model", "rows", "length", "options", "measured"),
    [
        (llama(), 8, 4096, {}, 58.5),
        (llama(), 8, 4096, {"optimizer": {"kind": "muon"}}, 54.9),
        (small(3072), 32, 1024, {}, 16.7),
        (small(2048), 16, 2048, {}, 14.2),
        (mixture(), 4, 4096, {"batch_tokens": 32 * 4096}, 121.9),
        (llama(), 8, 4096, {"precision": "float8"}, 54.6),
        (llama(), 8, 4096, {"precision": "float8", "float8_scaling": "row"}, 50.7),
    ],
    ids=["1.24B", "Muon", "0.15B", "0.12B", "mixture", "float8 by tensor", "float8 by row"],
)
def test_our_trainer_on_one_h200(
    model: ModelConfig, rows: int, length: int, options: dict[str, Any], measured: float
) -> None:
    """torch.cuda.max_memory_allocated() of `benchmarks/train.py` there, in GiB: within a tenth (docs/log.md)."""
    estimate = memory(shape_of(model), stage(model, rows, length, **options), ONE, DEVICE)
    assert estimate.total / GIB == pytest.approx(measured, rel=0.1)
