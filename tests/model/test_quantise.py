"""Quantisation-aware training: the grid, the straight-through gradient, and that training moves to the grid."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from ingot.model.quantise import quantise, rounded
from ingot.model.transformer import Transformer
from ingot.workspace.errors import RecipeError
from tests.model.tiny import config, random_model, random_tokens

MOE = {
    "kind": "moe",
    "experts": 4,
    "active": 2,
    "expert": {"width": 16},
    "shared": {"width": 8},
}


def by_hand(weight: Tensor, bits: int, group: int) -> Tensor:
    """The same numbers one at a time, as an integer kernel would see them."""
    largest = 2 ** (bits - 1) - 1
    result = torch.empty_like(weight)
    for row in range(weight.shape[0]):
        for start in range(0, weight.shape[1], group):
            part = weight[row, start : start + group]
            scale = max(abs(float(value)) for value in part) / largest
            for index, value in enumerate(part):
                integer = max(-largest, min(largest, round(float(value) / scale))) if scale else 0
                result[row, start + index] = integer * scale
    return result


@pytest.mark.parametrize(("bits", "group"), [(4, 8), (4, 24), (8, 6)])
def test_weights_lie_on_the_grid(bits: int, group: int) -> None:
    weight = torch.randn(5, 24, generator=torch.Generator().manual_seed(bits))
    weight[2, :group] = 0  # a group of zeros has no scale
    torch.testing.assert_close(rounded(weight, bits, group), by_hand(weight, bits, group), rtol=1e-6, atol=1e-7)
    integers, scales = quantise(weight, bits, group)
    assert torch.equal(integers, integers.round())
    assert int(integers.abs().max()) == 2 ** (bits - 1) - 1
    assert scales.shape == (5, 24 // group, 1)


def test_the_gradient_passes_straight_through() -> None:
    weight = torch.randn(6, 16, requires_grad=True)
    x, out = torch.randn(3, 16), torch.randn(3, 6)
    (linear(x, rounded(weight, 4, 8)) * out).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, out.T @ x)


def shape(parts: str, **changes: Any) -> Transformer:
    base = config().model_dump()
    base["blocks"]["layer0"]["feed_forward"] = MOE
    changed = base | {"quantisation": {"bits": 4, "group": 8, "parts": parts}} | changes
    return random_model(type(config()).model_validate(changed), scale=0.2)


@pytest.mark.parametrize("parts", ["experts", "linear"])
def test_the_model_computes_with_rounded_weights(parts: str) -> None:
    """The quantised model equals the plain model whose chosen weights were rounded beforehand."""
    model, tokens = shape(parts), random_tokens(2, 9)
    plain = Transformer(model.config.model_copy(update={"quantisation": None}))
    state = model.state_dict()
    for name, value in state.items():
        chosen = ".experts." in name or (parts == "linear" and name.startswith("blocks.") and name.endswith("weight"))
        if chosen and value.dim() >= 2 and "router" not in name:
            state[name] = rounded(value, 4, 8)
    plain.load_state_dict(state)
    torch.testing.assert_close(model(tokens), plain(tokens), rtol=1e-5, atol=1e-5)
    assert (model(tokens) - random_like(model)(tokens)).abs().max() > 1e-3  # rounding is visible


def random_like(model: Transformer) -> Transformer:
    plain = Transformer(model.config.model_copy(update={"quantisation": None}))
    plain.load_state_dict(model.state_dict())
    return plain


def test_training_learns_through_the_rounding() -> None:
    model, tokens = shape("linear"), random_tokens(4, 17)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.5 * losses[0], losses[::10]


def test_a_group_that_does_not_divide_is_named() -> None:
    with pytest.raises(RecipeError, match=r"query_key_value.weight has 24 inputs, no multiple of quantisation.group 7"):
        shape("linear", quantisation={"bits": 8, "group": 7})
