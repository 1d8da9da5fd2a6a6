"""Recomputation changes memory and nothing else: gradients, loads and losses of the parts, and a whole run."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import ingot.kernels
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.batches import split_rows
from ingot.train.config import ActivationsConfig
from ingot.train.layouts.steps import fresh, uneven
from ingot.train.losses.terms import CrossEntropy
from ingot.train.passes import Objective, Passes, Sums
from ingot.train.recompute import PRODUCTS, recompute
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.train.parallel.models import DENSE, MLA, MOE, VOCABULARY, shape, sparse, two_choices
from tests.train.toy import FixedSource, make_trainer, records

BLOCKS = {"dense": DENSE, "mla": MLA, "moe": MOE}
CPU = torch.device("cpu")


TWO_LAYERS = {name: shape(block, layers=2) for name, block in BLOCKS.items()} | {
    "sparse": shape(sparse(), layers=2),
    "warm-up": shape(sparse(stage="dense_warmup"), layers=2),
    "shared choice": two_choices(),
}


def passes(config: ModelConfig, keep: str) -> tuple[Transformer, Passes]:
    model = fresh(config).double()
    recompute(model, ActivationsConfig.model_validate({"keep": keep}), compiled=False)
    return model, Passes(model, Objective([CrossEntropy()]), CPU, torch.float32)


def one_step(runner: Passes, batches: list[Batch]) -> Sums:
    weights = torch.stack([batch.streams["weight"].sum() for batch in batches]).sum()
    tokens = torch.tensor(float(sum(batch.token_count for batch in batches)))
    return runner.run(batches, {"cross_entropy": weights.double()}, tokens.double())


@pytest.mark.parametrize("kind", TWO_LAYERS)
@pytest.mark.parametrize("keep", ["products", "blocks"])
def test_gradients_are_the_same_bits(kind: str, keep: str) -> None:
    """Two micro-batches: what a router saw in the first one is known to the balancers in the second."""
    batches = split_rows(uneven(0, rows=4), 2)
    results = []
    for each in ("all", keep):
        model, runner = passes(TWO_LAYERS[kind], each)
        sums = one_step(runner, batches)
        results.append((sums, {name: one.grad for name, one in model.named_parameters()}))
    (expected, exact), (found, gradients) = results
    assert found.parts.keys() == expected.parts.keys()
    assert all(torch.equal(found.parts[name], value) for name, value in expected.parts.items())
    for name, gradient in exact.items():
        assert gradient is not None and gradients[name] is not None and gradient.any(), name
        assert torch.equal(gradients[name], gradient), name  # type: ignore[arg-type]


def test_every_kernel_that_multiplies_is_kept() -> None:
    """A new operator of kernels/ is a product, whose result is kept, or it is named here: as cheap, or as queries × keys."""
    not_kept = {"cast_both", "qk_norm_rope", "swiglu"} | {"mean_of_heads"}
    sources = [path.read_text(encoding="utf-8") for path in Path(ingot.kernels.__path__[0]).rglob("*.py")]
    operators = {name for source in sources for name in re.findall(r'custom_op\("ingot::(\w+)"', source)}
    forward = {name for name in operators if not name.endswith("_backward")}
    assert len(forward) > 10 and {name for name in forward if not name.startswith(PRODUCTS)} == not_kept


@pytest.mark.parametrize("keep", ["all", "products", "blocks"])
def test_routers_count_every_token_once(keep: str) -> None:
    """The loads are counted by hand from the batches: every real token chooses two experts in every layer."""
    batches = split_rows(uneven(1, rows=4), 2)
    _, runner = passes(shape(MOE, layers=2), keep)
    sums = one_step(runner, batches)
    real = sum(batch.token_count for batch in batches)
    assert sorted(sums.record.loads) == [0, 1]
    for load in sums.record.loads.values():
        assert int(load.tokens) == real and int(load.choices_E.sum()) == 2 * real


class Live(TorchDispatchMode):
    """Bytes of the tensors made inside that are still alive, without those that were there before."""

    def __init__(self, before: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.before = {each.untyped_storage()._cdata for each in before}
        self.seen: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, operator: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        made = operator(*arguments, **(options or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, Tensor):
                storage = each.untyped_storage()
                if storage._cdata not in self.before:
                    self.seen[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return made

    def bytes(self) -> int:
        return sum(size for reference, size in self.seen.values() if not reference.expired())


@pytest.mark.parametrize("kind", BLOCKS)
def test_memory_falls(kind: str) -> None:
    """What is alive between the forward and the backward pass, and that nothing stays alive after it."""
    held, left = {}, {}
    batch = uneven(2, rows=4)
    for keep in ("all", "products", "blocks"):
        model, runner = passes(shape(BLOCKS[kind]), keep)
        gradients = [torch.zeros_like(each) for each in model.parameters()]
        for each, gradient in zip(model.parameters(), gradients, strict=True):
            each.grad = gradient
        record = runner.record(Sums())
        before = [*model.state_dict().values(), *gradients, batch.tokens, batch.positions, batch.documents]
        with Live(before) as live:
            states = model.hidden(batch.tokens, batch.positions, batch.documents, record=record)
            held[keep] = live.bytes()
            loss = states.square().mean() + sum(record.losses.values(), torch.zeros(()))
            loss.backward()
            del states, loss, record
            left[keep] = live.bytes()
    assert held["blocks"] < held["products"] < held["all"]
    assert held["blocks"] < 0.15 * held["all"], held  # what enters each of four blocks, and what all of them share
    assert held["products"] < 0.65 * held["all"], held
    assert max(left.values()) < 0.01 * held["all"], left  # positions and the like, until Python collects its cycles


def test_a_run_of_the_trainer(folder: StageFolder) -> None:
    """Two steps of two micro-batches with real updates: the same losses and the same weights, to the bit."""
    model = fresh(shape(MOE, layers=2))
    source = FixedSource(split_rows(uneven(3, rows=4), 2))
    logged, weights = {}, {}
    for keep in ("all", "products", "blocks"):
        stage = stage_folder(folder.path / keep, folder.progress)
        trainer = make_trainer(stage, model=copy.deepcopy(model), source=source, steps=2, activations={"keep": keep})
        trainer.run()
        logged[keep], weights[keep] = records(stage), trainer.model.state_dict()
    assert logged["all"][1]["loss"] < logged["all"][0]["loss"]
    for keep in ("products", "blocks"):
        assert logged[keep] == logged["all"]
        assert all(torch.equal(weights[keep][name], value) for name, value in weights["all"].items())


def test_nothing_is_recomputed_without_gradients() -> None:
    """Validation runs each block once, without recomputation."""
    model, _ = passes(shape(DENSE, layers=2), "blocks")
    plain = fresh(shape(DENSE, layers=2)).double()
    batch = uneven(4, rows=2)
    with torch.no_grad():
        states = model.hidden(batch.tokens, batch.positions, batch.documents)
        assert torch.equal(states, plain.hidden(batch.tokens, batch.positions, batch.documents))


def test_a_budget_needs_compiled_blocks(folder: StageFolder) -> None:
    with pytest.raises(RecipeError, match="budget needs compiled blocks") as caught:
        make_trainer(folder, activations={"keep": "budget"})
    assert "compile: blocks" in str(caught.value)


@pytest.mark.slow
def test_compiled_blocks_keep_what_the_budget_allows() -> None:
    """Less than a block that keeps all, with its gradients. What is asked is how the compiler divides its work in two passes."""
    tokens_BT = torch.arange(2 * 64).view(2, 64) % VOCABULARY
    found: list[tuple[int, dict[str, Tensor]]] = []
    for budget in (None, 0.1):
        torch._dynamo.reset()
        model = fresh(shape(DENSE, layers=1)).double()
        kept: dict[int, int] = {}

        def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch._functorch.config.patch(activation_memory_budget=1.0):
            if budget is not None:
                recompute(model, ActivationsConfig(keep="budget", budget=budget), compiled=True)
            model.blocks[0].compile(dynamic=False, backend="aot_eager_decomp_partition")
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                states_BTD = model.hidden(tokens_BT)
            for weight in model.parameters():
                kept.pop(weight.untyped_storage().data_ptr(), None)
            states_BTD.square().mean().backward()
        gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
        found.append((sum(kept.values()), gradients))
    (most, exact), (least, gradients) = found
    assert least < 0.5 * most, (most, least)
    assert gradients.keys() == exact.keys() and len(exact) > 5
    for name, gradient in exact.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-10, atol=1e-14)
    torch._dynamo.reset()


def test_the_budget_of_one_stage_is_not_that_of_the_next() -> None:
    with torch._functorch.config.patch(activation_memory_budget=1.0):
        recompute(fresh(shape(DENSE, layers=1)), ActivationsConfig(keep="budget", budget=0.25), compiled=True)
        recompute(fresh(shape(DENSE, layers=1)), ActivationsConfig(keep="all"), compiled=True)
        assert torch._functorch.config.activation_memory_budget == 1
