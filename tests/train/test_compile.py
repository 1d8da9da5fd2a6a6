"""Compiled blocks: the loss and the gradients of eager ones, and one piece of code for all equal layers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.metadata import with_metadata
from ingot.train import prepare
from ingot.train.config import ActivationsConfig, TrainingConfig
from ingot.train.layouts.steps import fresh
from ingot.train.losses.terms import CrossEntropy
from ingot.train.passes import Objective, Passes, Sums
from ingot.train.prepare import compile_blocks
from ingot.train.recompute import recompute
from tests.slow import first_fast
from tests.train.parallel.models import DENSE, MLA, MOE, VOCABULARY, shape

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """No compiled code and no counts from test to test."""
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(recompile_limit=prepare.VARIANTS):
        yield
    torch._dynamo.reset()
    counters.clear()


def whole_rows(rows: int = 2, length: int = 16, seed: int = 0) -> Batch:
    """Rows of one document each."""
    ids = torch.randint(VOCABULARY, (rows, length + 1), generator=torch.Generator().manual_seed(seed))
    documents = torch.arange(rows)[:, None].expand(rows, length).contiguous()
    positions = torch.arange(length).expand(rows, length).contiguous()
    batch = Batch(ids[:, :-1], ids[:, 1:], positions, documents, {"weight": torch.ones(rows, length)})
    return with_metadata(batch)


def train_pass(model: Transformer, batch: Batch, dtype: torch.dtype) -> tuple[Sums, dict[str, Tensor]]:
    runner = Passes(model, Objective([CrossEntropy()]), CPU, dtype)
    model.zero_grad()
    weights, tokens = batch.streams["weight"].sum().double(), torch.tensor(batch.token_count).double()
    sums = runner.run([batch], {"cross_entropy": weights}, tokens)
    return sums, {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def compare(config: ModelConfig, batch: Batch, keep: str = "all", dtype: torch.dtype = torch.float64) -> None:
    """Eager against compiled, in float64, in float32, or in bfloat16 with float32 masters."""
    results = []
    bound = 1e-5 if dtype == torch.float32 else 1e-12
    for compiled in (False, True):
        model = fresh(config)
        if dtype == torch.float64:
            model = model.double()
        if compiled:
            recompute(model, ActivationsConfig.model_validate({"keep": keep}), compiled=True)
            compile_blocks(model)
        results.append(train_pass(model, batch, torch.float32 if dtype == torch.float64 else dtype))
    (expected, exact), (found, gradients) = results
    assert found.parts.keys() == expected.parts.keys()
    for name, value in expected.parts.items():
        torch.testing.assert_close(found.parts[name], value, rtol=bound, atol=0)
    assert gradients.keys() == exact.keys()
    for name, gradient in exact.items():
        scale = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=bound * scale)
    assert found.record.loads.keys() == expected.record.loads.keys()
    for layer, load in expected.record.loads.items():
        assert torch.equal(found.record.loads[layer].choices_E, load.choices_E)
    assert counters["stats"]["unique_graphs"] > 0 and not counters["graph_break"], counters["graph_break"]


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace and differentiate as the compiler does, but run torch's own kernels: seconds instead of a minute."""
    monkeypatch.setattr(prepare, "COMPILER", "aot_eager")


@pytest.mark.parametrize(("block", "keep"), first_fast([(MLA, "blocks"), (DENSE, "all")]))
def test_traced_blocks_are_eager_ones(block: dict[str, object], keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    compare(shape(block, layers=2), whole_rows(), keep)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")
@pytest.mark.parametrize(
    ("keep", "dtype"),
    first_fast([("products", torch.bfloat16), ("blocks", torch.float64), ("all", torch.float32)]),
)
def test_routers_do_not_break_the_graph(keep: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads and losses come out of the code; grouped products are torch's in bfloat16 and our own operator elsewhere."""
    quick(monkeypatch)
    compare(shape(MOE, layers=2), whole_rows(), keep, dtype)


def test_equal_layers_share_their_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four layers, three passes: one graph; a new shape is one more, not one for every layer."""
    quick(monkeypatch)
    model = fresh(shape(DENSE, layers=4))
    compile_blocks(model)
    for seed in range(3):
        train_pass(model, whole_rows(seed=seed), torch.float32)
    assert counters["stats"]["unique_graphs"] == 1, counters
    assert not counters["graph_break"], counters["graph_break"]
    train_pass(model, whole_rows(rows=3), torch.float32)
    assert counters["stats"]["unique_graphs"] == 2, counters


def packed_rows(seed: int, rows: int = 2, length: int = 24) -> Batch:
    """Rows of documents whose lengths differ from batch to batch."""
    batch, generator = whole_rows(rows, length, seed), torch.Generator().manual_seed(seed)
    begins = torch.rand(rows, length, generator=generator) < 0.2
    begins[:, 0] = True
    index = torch.arange(length).expand(rows, length)
    positions = index - torch.where(begins, index, 0).cummax(1).values
    documents = begins.long().flatten().cumsum(0).unflatten(0, (rows, length)) - 1
    return with_metadata(Batch(batch.tokens, batch.targets, positions, documents, batch.streams))


def test_packed_rows_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention within documents stays outside the compiled code, because each batch cuts its rows in another way."""
    quick(monkeypatch)
    config = shape(DENSE, layers=3)
    model, eager = fresh(config), fresh(config)
    compile_blocks(model)
    graphs = []
    for seed in range(4):
        found, expected = (train_pass(each, packed_rows(seed), torch.float32)[1] for each in (model, eager))
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[1:] == [graphs[0]] * 3, graphs


@pytest.mark.slow
@pytest.mark.parametrize(("block", "dtype"), [(DENSE, torch.float64), (MOE, torch.float64), (MOE, torch.float32)])
def test_code_from_the_compiler(block: dict[str, object], dtype: torch.dtype) -> None:
    """inductor's own kernels on the CPU, made by a C++ compiler: in float64 only a mistake can differ."""
    compare(shape(block, layers=2), whole_rows(), dtype=dtype)


def test_auto_compiles_on_a_gpu_but_not_in_float32() -> None:
    """SFT of 0.8M parameters on an H200 spent minutes a step on compiling flex attention for each packed shape (docs/log.md)."""
    auto, always = (
        TrainingConfig(steps=1, sequence_length=8),
        TrainingConfig(steps=1, sequence_length=8, compile="blocks"),
    )
    gpu = torch.device("cuda")
    assert prepare.is_compiled(auto, gpu, torch.bfloat16) and prepare.is_compiled(always, gpu, torch.float32)
    assert not prepare.is_compiled(auto, gpu, torch.float32) and not prepare.is_compiled(auto, CPU, torch.bfloat16)
