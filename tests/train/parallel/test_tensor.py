"""Tensor parallelism against one process: loss and every gradient, for models with all that attention may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from ingot.kernels.quantised import float8 as kernels_float8
from ingot.model.config import ModelConfig
from ingot.model.order import ShardOrder, in_model_order, in_ranks_order, local, orders, whole
from ingot.model.transformer import Transformer
from ingot.train import float8
from ingot.train.layouts.steps import fresh, uneven
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.layout import Layout, make_layout
from ingot.train.parallel.shard import shard_model
from ingot.train.parallel.tensor import apply_tensor_parallel
from ingot.train.parallel.vocabulary import divided_cross_entropy
from ingot.workspace.errors import RecipeError
from tests.slow import first_fast, slow
from tests.train.parallel.models import DENSE, MLA, MOE, VOCABULARY, shape, sparse, two_choices
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.reference import Results, compare, loss_of, one_process

RICH: dict[str, Any] = {  # two key heads at most for two ranks; everything that attention and feed-forward may have
    "mixer": {
        **DENSE["mixer"],
        "query_key_norm": "full",
        "query_key_value_bias": True,
        "output_bias": True,
        "sinks": True,
        "gate": {"place": "output", "form": "headwise"},
        "window": 9,
    },
    "feed_forward": {"width": 48, "bias": True, "output_multiplier": 0.5},
}
GATED: dict[str, Any] = {
    "mixer": {**DENSE["mixer"], "query_key_norm": "head", "gate": {"place": "value", "form": "elementwise"}},
    "feed_forward": {"width": 48, "gated": False, "activation": "relu_squared"},
}
BIASED_MOE: dict[str, Any] = {
    "mixer": {**MLA["mixer"], "query_latent": None, "bias": True},
    "feed_forward": {
        **MOE["feed_forward"],
        "expert": {"width": 16, "bias": True},
        "shared_gate": True,
        "latent": 24,
        "router": {"score": "softmax", "bias": True},
        "balancers": [{"kind": "z_loss", "coefficient": 0.1}],
    },
}
FOUR_HEADS = {**DENSE, "mixer": {**DENSE["mixer"], "heads": 8, "key_value_heads": 4}}
CUT = (
    "embedding",
    "query_key_value",
    "query_norm",
    "key_norm",
    "sinks",
    "gate.",
    "gate_up",
    "mixer.output.w",
    "down.w",
)
MODELS = {
    "dense": shape(DENSE, 2),
    "rich": shape(RICH, 2, tied_embeddings=True),
    "gated": shape(GATED, 2, norm={"zero_centred": True}),
    "mla": shape(MLA, 2),
    "sparse": shape(sparse(), 2),
    "warm": shape(sparse(stage="dense_warmup"), 2),
    "shared choice": two_choices(),
    "moe": shape(MOE, 2),
    "biased_moe": shape(BIASED_MOE, 2),
    "odd": shape(DENSE, 1, vocabulary_size=VOCABULARY + 1),  # the vocabulary cannot be cut
    "four": shape(FOUR_HEADS, 2),
}


def varied(config: ModelConfig) -> Transformer:
    """A model in which no two rows are alike: biases, sinks and gains are drawn too."""
    model = fresh(config)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn(each.shape, generator=generator), alpha=0.1)
    return model


def divided(config: ModelConfig, mesh: MeshConfig) -> tuple[Transformer, Layout]:
    layout = make_layout(mesh, torch.device("cpu"))
    assert layout is not None
    model = varied(config)
    apply_tensor_parallel(model, layout)
    return model, layout


def gradients_of(model: Transformer) -> dict[str, Tensor]:
    """All gradients, whole and in the model's order."""
    order = orders(model)
    return {name: whole(each.grad, order.get(name)) for name, each in model.named_parameters() if each.grad is not None}


def by_tensor(names: list[str], tensor: int) -> list[Results]:
    results = []
    for name in names:
        model, _ = divided(MODELS[name], MeshConfig(tensor=tensor))
        loss = loss_of(model, uneven(0))
        loss.backward()
        results.append((float(loss.detach()), gradients_of(model)))
    return results


TILES = shape({**DENSE, "feed_forward": {"width": 64}}, 2)  # halves of all matrices have whole tiles


def in_float8(tensor: int, precision: str = "float8") -> tuple[int, Results]:
    """How many products a pass makes in float8, its loss and gradients."""
    made: list[Any] = []
    kernel = kernels_float8.multiply_cast

    def counted(*given: Any, **options: Any) -> Tensor:
        made.append(given)
        return kernel(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(float8, "SMALLEST", 16)
        patch.setattr(float8, "multiply_cast", counted)
        model = varied(TILES) if tensor == 1 else divided(TILES, MeshConfig(tensor=tensor))[0]
        if precision == "float8":
            float8.use_float8(model, "tensor")
        loss = loss_of(model, uneven(0))
        loss.backward()
        return len(made), (float(loss.detach()), gradients_of(model))


def test_divided_layers_multiply_in_float8_as_whole_ones_do(tmp_path: Path) -> None:
    """As many products on every rank, and as near to float32: 4 layers a block, 3 products each (y, dx, dW)."""
    _, (exact, exact_gradients) = in_float8(1, "float32")
    alone, (loss, gradients) = in_float8(1)
    ranks = run_ranks(2, in_float8, tmp_path / "store", 2)
    assert [alone, *(made for made, _ in ranks)] == [2 * 4 * 3] * 3
    assert abs(loss - exact) > 1e-4, "one process is in float8"

    def error(found: dict[str, Any], name: str) -> float:
        wanted = exact_gradients[name]
        return float((torch.as_tensor(found[name]) - wanted).norm() / wanted.norm())

    for _, (divided_loss, divided_gradients) in ranks:
        assert divided_loss == pytest.approx(exact, rel=0.02)
        for name in gradients:
            assert error(divided_gradients, name) < 1.5 * error(gradients, name) + 0.01, name


@pytest.mark.parametrize(
    ("tensor", "names"),
    [
        (2, ["dense", "rich", "gated", "mla", "sparse", "warm", "shared choice", "moe", "biased_moe", "odd"]),
        slow((4, ["four", "mla"])),
    ],
)
def test_loss_and_all_gradients_equal_one_process(tensor: int, names: list[str], tmp_path: Path) -> None:
    ranks = run_ranks(tensor, by_tensor, tmp_path / "store", names, tensor)
    for number, name in enumerate(names):
        results = [rank[number] for rank in ranks]
        compare(one_process(varied(MODELS[name]), uneven(0)), results, bound=3e-6)
        for parameter, gradient in results[0][1].items():  # what is whole on every rank must never drift apart
            assert all(numpy.array_equal(gradient, other[1][parameter]) for other in results), parameter


def by_tensor_and_shard(names: list[str]) -> list[Results]:
    results = []
    for name in names:
        model, layout = divided(MODELS[name], MeshConfig(tensor=2, shard=2))
        shard_model(model, layout, torch.float32)
        rows = slice(layout.data_rank, None, 2)
        loss = loss_of(model, uneven(0), rows)
        loss.backward()
        total = layout.sum_over_loss(loss.detach())
        results.append((float(total), gradients_of(model)))
    return results


@pytest.mark.parametrize("names", first_fast([["rich", "biased_moe"], ["mla"]]), ids=["some", "more"])
def test_with_sharded_data_parallelism(names: list[str], tmp_path: Path) -> None:
    ranks = run_ranks(4, by_tensor_and_shard, tmp_path / "store", names)
    for number, name in enumerate(names):
        compare(one_process(varied(MODELS[name]), uneven(0)), [rank[number] for rank in ranks], bound=3e-6)


def shards_of_initial_weights() -> dict[str, dict[str, Any]]:
    model, _ = divided(MODELS["rich"], MeshConfig(tensor=2))
    order = orders(model)
    cut = {name: each for name, each in model.named_parameters() if isinstance(each, DTensor)}
    back = {name: in_ranks_order(in_model_order(each, order.get(name)), order.get(name)) for name, each in cut.items()}
    assert all(torch.equal(local(back[name]), local(each)) for name, each in cut.items())
    return {
        "own": {name: each.to_local() for name, each in cut.items()},
        "gathered": {name: whole(each, order.get(name)) for name, each in cut.items()},
    }


def test_ranks_start_from_different_parts_of_one_model(tmp_path: Path) -> None:
    """The famous bug: ranks that draw their shards with one seed all have the same heads."""
    model = varied(MODELS["rich"])
    first, second = run_ranks(2, shards_of_initial_weights, tmp_path / "store")
    names = [name for name, _ in model.named_parameters() if any(part in name for part in CUT)]
    assert sorted(first["own"]) == sorted(names)
    for name in names:
        expected = model.get_parameter(name).detach().numpy()
        assert first["own"][name].size == second["own"][name].size == expected.size // 2
        assert not numpy.isin(first["own"][name], second["own"][name]).any(), name
        numpy.testing.assert_array_equal(first["gathered"][name], expected)
        numpy.testing.assert_array_equal(second["gathered"][name], expected)


def refused(config: ModelConfig, tensor: int) -> str:
    with pytest.raises(RecipeError) as caught:
        divided(config, MeshConfig(tensor=tensor))
    return str(caught.value)


def test_indivisible_models_are_refused(tmp_path: Path) -> None:
    messages = run_ranks(4, refused, tmp_path / "store", MODELS["dense"], 4)
    assert all("does not divide key_value_heads (2)" in message for message in messages)


def test_sections_are_cut_one_by_one() -> None:
    order = ShardOrder.of_sections(0, (4, 2, 2), ranks=2)
    assert order.rows.tolist() == [0, 1, 4, 6, 2, 3, 5, 7]
    rows = torch.arange(8.0)[:, None]
    assert in_model_order(in_ranks_order(rows, order), order).equal(rows)


def divided_losses() -> dict[str, Any]:
    """The fused loss of a divided head in float64, with everything that a head may have."""
    layout = make_layout(MeshConfig(tensor=2), torch.device("cpu"))
    assert layout is not None
    states, head, targets, a, b = head_case()
    mesh = layout.mesh["tensor"]
    whole_head = distribute_tensor(head.detach(), mesh, [Shard(0)])
    whole_head.requires_grad_()
    states.requires_grad_()
    loss, logprobs, normalisers = divided_cross_entropy(states, whole_head, targets, a, b, scale=0.7, softcap=3.0)
    (2 * loss).backward()
    assert states.grad is not None and isinstance(whole_head.grad, DTensor)
    return {
        "loss": loss,
        "logprobs": logprobs,
        "normalisers": normalisers,
        "states": states.grad,
        "head": whole_head.grad.full_tensor(),
    }


def head_case() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    states, head = (torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in (50, 12))
    a, b = (torch.randn(50, generator=generator, dtype=torch.float64) for _ in range(2))
    return states, head, torch.randint(12, (50,), generator=generator), a, b


def test_loss_of_a_divided_head(tmp_path: Path) -> None:
    states, head, targets, a, b = head_case()
    states.requires_grad_()
    head.requires_grad_()
    logits = 3.0 * torch.tanh(0.7 * states @ head.T / 3.0)
    logprobs = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]
    loss = (a * logprobs + b * logits.logsumexp(-1).square()).sum()
    (2 * loss).backward()
    expected = {
        "loss": loss,
        "logprobs": logprobs,
        "normalisers": logits.logsumexp(-1),
        "states": states.grad,
        "head": head.grad,
    }
    for rank in run_ranks(2, divided_losses, tmp_path / "store"):
        for name, value in expected.items():
            assert value is not None
            numpy.testing.assert_allclose(rank[name], value.detach().numpy(), rtol=1e-12, atol=1e-12)
