"""Grouped and looped experts: the same values and gradients, and both equal to each token's experts one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import grouped_mm

from ingot.kernels.experts import grouped_linear as module
from ingot.model.feed_forward.dense import FeedForward, FeedForwardConfig
from ingot.model.feed_forward.experts import Experts

EXPERTS, WIDTH, TOKENS = 7, 8, 23
OPTIONS: dict[str, dict[str, Any]] = {
    "gated": {},
    "ungated": {"gated": False, "activation": "relu_squared"},
    "biases and clamp": {"bias": True, "clamp": 0.3, "up_offset": 1.0, "activation": "swish_1702"},
    "multipliers": {"gate_multiplier": 0.5, "output_multiplier": 3.0},
}


def make(options: dict[str, Any], inner: int = 12, weigh_input: bool = False) -> Experts:
    torch.manual_seed(0)
    config = FeedForwardConfig.model_validate({"width": inner, **options})
    experts = Experts(config, EXPERTS, WIDTH, weigh_input=weigh_input)
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.normal_(0, 0.5)
    return experts


def choices(active: int, *, empty: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, different experts of each token (no token has the experts 0, 3 and 6), weights."""
    generator = torch.Generator().manual_seed(1)
    allowed = torch.tensor([1, 2, 4, 5]) if empty else torch.arange(EXPERTS)
    picks = torch.stack([torch.randperm(len(allowed), generator=generator)[:active] for _ in range(TOKENS)])
    x = torch.randn(TOKENS, WIDTH, generator=generator)
    return x, allowed[picks], torch.rand(TOKENS, active, generator=generator) + 0.1


def outcome(experts: Experts, backend: str, x: Tensor, indices: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """The output and the gradient of everything that has one."""
    experts.backend = backend  # type: ignore[assignment]
    experts.zero_grad()
    x, weights = x.clone().requires_grad_(), weights.clone().requires_grad_()
    out = experts(x, indices, weights)
    (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
    assert x.grad is not None and weights.grad is not None
    gradients = {name: p.grad.clone() for name, p in experts.named_parameters() if p.grad is not None}
    assert gradients.keys() == dict(experts.named_parameters()).keys()
    return {"out": out.detach(), "x": x.grad, "weights": weights.grad, **gradients}


def one_by_one(experts: Experts, x: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
    """Every token's experts as dense feed-forwards."""
    rows = []
    for token in range(TOKENS):
        total = torch.zeros(WIDTH, dtype=x.dtype)
        for expert, weight in zip(indices[token].tolist(), weights[token], strict=True):
            dense = FeedForward(experts.config, WIDTH).to(x.dtype)
            state = {}
            for name, value in experts.named_parameters():
                kind = ".bias" if name.endswith("_bias") else ".weight"
                state[name.removesuffix("_bias") + kind] = value[expert].detach()
            dense.load_state_dict(state)
            total += dense(weight * x[token]) if experts.weigh_input else weight * dense(x[token])
        rows.append(total)
    return torch.stack(rows).detach()


@pytest.mark.parametrize("weigh_input", [False, True])
@pytest.mark.parametrize("active", [1, 3])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize(
    ("dtype", "inner", "kernel"), [(torch.float64, 12, False), (torch.float32, 12, True), (torch.float32, 11, False)]
)
def test_backends_agree(
    dtype: torch.dtype,
    inner: int,
    kernel: bool,
    options: dict[str, Any],
    active: int,
    weigh_input: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch's kernel where it can (float32, rows of 16 bytes), slices elsewhere; some experts get no token."""
    calls: list[int] = []

    def counted(*given: Any, **named: Any) -> Tensor:
        calls.append(1)
        return grouped_mm(*given, **named)

    monkeypatch.setattr(module, "grouped_mm", counted)
    experts = make(options, inner, weigh_input).to(dtype)
    x, indices, weights = choices(active)
    x, weights = x.to(dtype), weights.to(dtype)
    grouped = outcome(experts, "grouped", x, indices, weights)
    assert bool(calls) == kernel
    looped = outcome(experts, "loop", x, indices, weights)
    bar = 1e-12 if dtype == torch.float64 else 2e-5
    for name, value in looped.items():
        assert value.abs().max() > 0.01, name
        torch.testing.assert_close(grouped[name], value, rtol=bar, atol=bar)
    torch.testing.assert_close(looped["out"], one_by_one(experts, x, indices, weights), rtol=bar, atol=bar)
    unused = grouped[experts.first][[0, 3, 6]]
    assert torch.equal(unused, torch.zeros_like(unused)), "an expert without tokens has a gradient of zero"


def test_gradients_by_finite_differences() -> None:
    experts = make(OPTIONS["biases and clamp"], inner=2).double()
    x, indices, weights = choices(2, empty=False)
    x, weights = x[:3].double().requires_grad_(), weights[:3].double().requires_grad_()
    parameters = tuple(experts.parameters())
    assert torch.autograd.gradcheck(lambda x, w, *_: experts(x, indices[:3], w), (x, weights, *parameters))


def test_no_token_and_one_token() -> None:
    experts = make({})
    x, indices, weights = choices(3)
    assert experts(x[:0], indices[:0], weights[:0]).shape == (0, WIDTH)
    whole = experts(x, indices, weights)
    torch.testing.assert_close(experts(x[5:6], indices[5:6], weights[5:6]), whole[5:6], rtol=1e-5, atol=1e-6)


def test_weights_are_rounded_where_asked() -> None:
    """The rounding sees the stacked weights, its gradient is used, and biases are left alone."""
    experts = make({"bias": True})
    x, indices, weights = choices(3)
    reference = make({"bias": True})
    with torch.no_grad():
        for name in ("gate_up", "down"):
            reference.get_parameter(name).mul_(0.5)
    experts.rounding = lambda weight: weight * 0.5
    for backend in ("grouped", "loop"):
        mine, expected = (outcome(each, backend, x, indices, weights) for each in (experts, reference))
        torch.testing.assert_close(mine["out"], expected["out"])
        torch.testing.assert_close(mine["gate_up"], 0.5 * expected["gate_up"])
        torch.testing.assert_close(mine["down_bias"], expected["down_bias"])


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a processor without bfloat16
def test_mixed_precision_multiplies_in_the_lower_one() -> None:
    experts, (x, indices, weights) = make({}), choices(3)
    with torch.autocast("cpu", torch.bfloat16):
        low = experts(x, indices, weights)
        experts.backend = "loop"
        looped = experts(x, indices, weights)
    assert low.dtype == looped.dtype == torch.bfloat16
    exact = experts(x, indices, weights)
    scale = exact.abs().max()
    assert 1e-4 < (low - exact).abs().max() / scale < 0.03
    assert (low - looped).abs().max() / scale < 0.02
