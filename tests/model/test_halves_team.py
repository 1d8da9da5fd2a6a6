"""Layers by the loops of a training run on a CPU against the same layers, module by module, in float64."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.model import halves, product, team
from ingot.model.config import ModelConfig
from ingot.model.layers_team import AT_ONCE
from ingot.model.product import IS_ARM
from ingot.model.team import Place
from ingot.model.team_plan import Plan
from ingot.model.transformer import Transformer
from ingot.train.on_cpu import fast_on_cpu

pytestmark = pytest.mark.skipif(
    not IS_ARM or team.openmp() is None, reason="the tiles are made for ARM and for GNU's OpenMP library"
)
CPU = torch.device("cpu")


def make(layers: int = 2, **mixer: Any) -> Transformer:
    rope = {"base": 10_000.0, **mixer.pop("rope", {})}
    attention = {"heads": 8, "key_value_heads": 4, "head_width": 16, "rope": rope, **mixer}
    return Transformer(
        ModelConfig.model_validate(
            {
                "vocabulary_size": 128,
                "width": 128,
                "blocks": {"layer": {"mixer": attention, "feed_forward": {"width": 192}}},
                "layers": f"layer*{layers}",
                "context": 80,
            }
        )
    )


def gradients(model: Transformer, tokens_BT: Tensor) -> tuple[Tensor, list[Tensor], Counter[str]]:
    """States, gradients of a weighted sum of them, and the steps of autograd that made them, by their names."""
    states = model.hidden(tokens_BT)
    seen, todo = set(), [states.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [each for each, _ in node.next_functions]
    names = Counter(type(node).__name__ for node in seen)
    weight = torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)
    return states.detach(), list(torch.autograd.grad((states * weight).sum(), list(model.parameters()))), names


def agree(found: Tensor, ours: list[Tensor], wanted: Tensor, exact: list[Tensor]) -> None:
    for one, other in zip([found, *ours], [wanted, *exact], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * float(other.abs().max()))


@pytest.mark.parametrize("mixer", [{}, {"rope": {"pairing": "interleaved"}}, {"scale": 0.1}])
def test_layers(mixer: dict[str, Any]) -> None:
    model = make(**mixer)
    for norm in (model.blocks[0].mixer_norm, model.blocks[1].feed_forward_norm):
        torch.nn.init.normal_(norm.gain, 1.0, 0.3)  # type: ignore[union-attr, arg-type]
    tokens_BT = torch.randint(128, (3, 77))
    wanted, exact, _ = gradients(copy.deepcopy(model).double(), tokens_BT)
    with fast_on_cpu(CPU):
        for _ in range(2):  # the second time on memory that was used before
            found, ours, names = gradients(model, tokens_BT)
            assert names["_HalvesBackward"] == 1 and not {"_SquareBackward", "_ProductBackward"} & set(names)
            agree(found, ours, wanted, exact)


def test_many_layers_are_taken_a_few_at_a_time() -> None:
    """One of them, in the middle, is called by somebody's own function, as where activations are computed twice."""
    model, tokens_BT = make(2 * AT_ONCE + 1), torch.randint(128, (1, 70))
    wanted, exact, _ = gradients(copy.deepcopy(model).double(), tokens_BT)
    with fast_on_cpu(CPU):
        found, ours, names = gradients(model, tokens_BT)
        agree(found, ours, wanted, exact)
        assert names["_HalvesBackward"] == 3
        block, calls = model.blocks[1], list[int]()
        plain = block.forward

        def called(*given: Any) -> Any:
            calls.append(1)
            return plain(*given)

        block.forward = called
        found, ours, names = gradients(model, tokens_BT)
        agree(found, ours, wanted, exact)
        assert len(calls) == 1 and names["_HalvesBackward"] == 1 + 2 + 2


def test_two_passes_before_their_gradients() -> None:
    """What is kept of the first pass is not what the second one writes to."""
    model, (first, second) = make(), torch.randint(128, (2, 2, 70))
    weight_BTD = torch.linspace(-1, 1, 2 * 70 * 128).view(2, 70, 128)

    def both(model: Transformer) -> tuple[Tensor, ...]:
        states = model.hidden(first), model.hidden(second)
        return torch.autograd.grad(
            (states[0] * weight_BTD - states[1] * weight_BTD.square()).sum(), list(model.parameters())
        )

    wanted = both(copy.deepcopy(model).double())
    with fast_on_cpu(CPU):
        found = both(model)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * float(other.abs().max()))


@pytest.mark.parametrize("mixer", [{"window": 8}, {"softcap": 5.0}, {"sinks": True}, {"query_key_norm": "head"}])
def test_unusual_attention_is_left_to_the_modules(mixer: dict[str, Any]) -> None:
    model, tokens_BT = make(1, **mixer), torch.randint(128, (2, 77))
    wanted, exact, _ = gradients(copy.deepcopy(model).double(), tokens_BT)
    with fast_on_cpu(CPU):
        found, ours, names = gradients(model, tokens_BT)
    assert names["_ProductBackward"] == 2 and names["_HalvesBackward"] == 1  # the feed-forward
    agree(found, ours, wanted, exact)


def test_documents_and_hooks_are_left_to_the_modules() -> None:
    model, tokens_BT = make(1), torch.randint(128, (2, 77))
    positions_BT = (torch.arange(77) % 40).expand(2, 77)
    documents_BT = (torch.arange(77) // 40).expand(2, 77)
    alone = model.hidden(tokens_BT[:, 40:], positions_BT[:, 40:]).detach()
    heard: list[Tensor] = []
    with fast_on_cpu(CPU):
        packed = model.hidden(tokens_BT, positions_BT, documents_BT)
        torch.testing.assert_close(packed[:, 40:], alone, rtol=1e-4, atol=1e-5)
        block = model.blocks[0]
        handle = block.feed_forward.down.register_forward_hook(lambda *given: heard.append(given[2]))  # type: ignore[union-attr]
        model.hidden(tokens_BT)
        handle.remove()
    assert len(heard) == 1


def test_outside_a_run_layers_are_torchs_again() -> None:
    model, tokens_BT = make(1), torch.randint(128, (2, 77))
    with fast_on_cpu(CPU):
        pass
    assert not {"_HalvesBackward", "_ProductBackward", "_LookUpBackward"} & set(gradients(model, tokens_BT)[2])


def test_a_plan_runs_its_stages_in_order_on_any_tensors() -> None:
    from ingot.model.norm_team import norm_forward

    size, rows = (64, 32), 64
    normed, other = Place("kept").side_by_side((rows * 32, rows * 16))
    plan = Plan(
        [
            norm_forward(Place("x"), Place("gain"), normed, size, 1e-6),
            product.project(normed, Place("weight"), other, (rows, 32, 16)),
            product.project(other, Place("weight", 32 * 16), Place("out"), (rows, 16, 48), adds=True),
        ],
        torch.get_num_threads(),
    )
    results = []
    for number in range(2):
        x, gain, weight = torch.randn(*size), torch.rand(32), torch.randn(32 * 16 + 16 * 48)
        out, kept = torch.full((rows, 48), float(number)), torch.empty(rows * 48)
        plan.run({"x": x, "gain": gain, "weight": weight, "kept": kept, "out": out, "a name of nobody": x})
        exact = torch.nn.functional.rms_norm(x.double(), (32,), gain.double(), 1e-6)
        exact = exact @ weight[: 32 * 16].view(16, 32).double().T @ weight[32 * 16 :].view(48, 16).double().T + number
        results.append((out, exact))
    for found, wanted in results:
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_frozen_weights_cost_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens_BT = make(1), torch.randint(128, (2, 77))
    trained = [each for name, each in model.named_parameters() if name.endswith("gain") or "embedding" in name]
    for parameter in model.parameters():
        parameter.requires_grad_(any(parameter is each for each in trained))
    exact, weight_BTD = copy.deepcopy(model).double(), torch.linspace(-1, 1, 2 * 77 * 128).view(2, 77, 128)
    learning = [each for each in exact.parameters() if each.requires_grad]
    wanted = torch.autograd.grad((exact.hidden(tokens_BT) * weight_BTD).sum(), learning)
    shapes: list[tuple[int, int, int]] = []
    plain = product.product_stage

    def count(*given: Any, **options: Any) -> Any:
        shapes.append(given[3])
        return plain(*given, **options)

    monkeypatch.setattr(product, "product_stage", count)
    for plans in (halves._forward, halves._backward):
        plans.cache_clear()
    with fast_on_cpu(CPU):
        found = torch.autograd.grad((model.hidden(tokens_BT) * weight_BTD).sum(), trained)
    assert len(shapes) == 8  # four products, and the gradients of what enters them
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * float(other.abs().max()))
