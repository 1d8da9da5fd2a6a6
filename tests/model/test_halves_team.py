"""A layer by the loops of a training run on a CPU against the same layer, module by module, in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.model import halves_team, product, rooms, team
from ingot.model.config import ModelConfig
from ingot.model.product import IS_ARM
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


def gradients(model: Transformer, tokens_BT: Tensor) -> tuple[Tensor, list[Tensor], set[str]]:
    """States, gradients of a weighted sum of them, and the steps of autograd that made them."""
    states = model.hidden(tokens_BT)
    seen, names, todo = set(), set(), [states.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.add(type(node).__name__)
            todo += [each for each, _ in node.next_functions]
    weight = torch.linspace(-1, 1, states.numel(), dtype=states.dtype).view_as(states)
    return states.detach(), list(torch.autograd.grad((states * weight).sum(), list(model.parameters()))), names


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
            assert {"_AttentionBackward", "_FeedForwardBackward"} <= names and "_SquareBackward" not in names
            for one, other in zip([found, *ours], [wanted, *exact], strict=True):
                torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * float(other.abs().max()))


@pytest.mark.parametrize("mixer", [{"window": 8}, {"softcap": 5.0}, {"sinks": True}, {"query_key_norm": "head"}])
def test_unusual_attention_is_left_to_the_modules(mixer: dict[str, Any]) -> None:
    model, tokens_BT = make(1, **mixer), torch.randint(128, (2, 77))
    wanted, exact, _ = gradients(copy.deepcopy(model).double(), tokens_BT)
    with fast_on_cpu(CPU):
        found, ours, names = gradients(model, tokens_BT)
    assert "_AttentionBackward" not in names and "_FeedForwardBackward" in names
    for one, other in zip([found, *ours], [wanted, *exact], strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * float(other.abs().max()))


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
    assert not {"_AttentionBackward", "_FeedForwardBackward", "_ProductBackward"} & gradients(model, tokens_BT)[2]


def test_one_call_for_many_loops_runs_them_in_order() -> None:
    from ingot.model.norm_team import norm_forward

    x, gain, weight = torch.randn(64, 32), torch.rand(32), torch.randn(32, 16)
    with team.together():
        normed = norm_forward(x, gain, 1e-6)
        out = product.product(normed, weight, torch.zeros(64, 16))
        assert not out.any()  # nothing has run yet
    exact = torch.nn.functional.rms_norm(x.double(), (32,), gain.double(), 1e-6) @ weight.double()
    torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-4)


def test_memory_of_waiting_loops_is_not_given_up() -> None:
    """Working memory that only waiting loops know counts as in use, also while other rooms are given up."""
    with rooms.kept_rooms():
        for length in range(64, 400, 23):  # sizes that were never there before make way for each other
            x, weight = torch.randn(length, 64), torch.randn(64, 96)
            with team.together():
                given = product.product(x, weight, rooms.new_room(length, 96))
                other = product.product(given, weight.T, rooms.new_room(length, 64))
                tensors = [each for _, _, numbers in team._waiting.stages or [] for each in numbers]
                addresses = {each.data_ptr() for each in tensors if isinstance(each, Tensor)}
                held = {place.ctypes.data for each in rooms._kept[-1].by_size.values() for place in each}
                working = {numbers[12].data_ptr() for _, _, numbers in team._waiting.stages or []}
                assert working <= addresses & held
            exact = x.double() @ weight.double() @ weight.double().T
            torch.testing.assert_close(other.double(), exact, rtol=1e-4, atol=1e-3)


def test_frozen_weights_cost_no_products(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens_BT = make(1), torch.randint(128, (2, 77))
    trained = [each for name, each in model.named_parameters() if name.endswith("gain") or "embedding" in name]
    for parameter in model.parameters():
        parameter.requires_grad_(any(parameter is each for each in trained))
    exact, weight_BTD = copy.deepcopy(model).double(), torch.linspace(-1, 1, 2 * 77 * 128).view(2, 77, 128)
    learning = [each for each in exact.parameters() if each.requires_grad]
    wanted = torch.autograd.grad((exact.hidden(tokens_BT) * weight_BTD).sum(), learning)
    shapes: list[tuple[int, int, int]] = []
    plain = product.run_product

    def count(*given: Any, **options: Any) -> Tensor:
        shapes.append(given[3])
        return plain(*given, **options)

    monkeypatch.setattr(halves_team, "run_product", count)
    with fast_on_cpu(CPU):
        found = torch.autograd.grad((model.hidden(tokens_BT) * weight_BTD).sum(), trained)
    assert len(shapes) == 8  # four products, and the gradients of what enters them
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-5 * float(other.abs().max()))
