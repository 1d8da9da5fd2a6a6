"""Products of a few tokens with their experts' matrices, against the definition in float64 and against the sorted way.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_chosen_linear.py
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ingot.kernels.experts.chosen_linear import chosen_linear_definition, chosen_sum_definition, kernel_allowed
from ingot.model.feed_forward import experts as module
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.experts import Experts

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.experts.chosen_linear_kernel import launch_linear, launch_sum  # noqa: E402
from tests.slow import first_fast  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EXPERTS = 13
BARS = {
    torch.float32: 2e-6,
    torch.bfloat16: 8e-3,
}  # of the largest value; the interpreter cuts to 8 bits where a GPU rounds


def make(
    tokens: int, active: int, inputs: int, outputs: int, dtype: torch.dtype, bias: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    """One input of each choice, matrices, biases, different experts of each token, weights."""
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, active, inputs, generator=generator).to(DEVICE, dtype)
    weight = torch.randn(EXPERTS, outputs, inputs, generator=generator).to(DEVICE, dtype)
    biases = torch.randn(EXPERTS, outputs, generator=generator).to(DEVICE, dtype) if bias else None
    experts = torch.stack([torch.randperm(EXPERTS, generator=generator)[:active] for _ in range(tokens)])
    weights = torch.rand(tokens, active, generator=generator)
    return x, weight, biases, experts.to(DEVICE), weights.to(DEVICE)


def close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    difference = (found.double() - expected).abs().max() / expected.abs().max()
    assert difference < BARS[found.dtype]


def exact(x: Tensor | None) -> Any:
    return None if x is None else x.double()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", first_fast(list(BARS)))
@pytest.mark.parametrize(
    ("tokens", "active", "inputs", "outputs"),
    first_fast([(3, 3, 300, 37), (2, 1, 24, 20), (1, 11, 40, 3), (1, 8, 256, 64)], keep=3),
)
@torch.no_grad()
def test_like_the_definition(
    tokens: int, active: int, inputs: int, outputs: int, dtype: torch.dtype, bias: bool
) -> None:
    """Widths and numbers of choices that are no power of two; one input of a token, and one of each choice; sums."""
    x, weight, biases, experts, weights = make(tokens, active, inputs, outputs, dtype, bias)
    for given in (x, x[:, 0]):
        expected = chosen_linear_definition(exact(given), exact(weight), exact(biases), experts)
        close(launch_linear(given, weight, biases, experts), expected)
    for factors in (weights, weights.to(dtype), None):
        expected = chosen_sum_definition(exact(x), exact(weight), exact(biases), experts, exact(factors))
        close(launch_sum(x, weight, biases, experts, factors), expected)


OPTIONS: dict[str, dict[str, Any]] = {
    "gated": {},
    "ungated": {"gated": False, "activation": "relu_squared"},
    "biases and clamp": {"bias": True, "clamp": 0.3, "up_offset": 1.0, "activation": "swish_1702"},
    "multipliers": {"gate_multiplier": 0.5, "output_multiplier": 3.0},
}


@pytest.mark.parametrize("weigh_input", [False, True])
@pytest.mark.parametrize("options", first_fast(list(OPTIONS.values()), keep=3), ids=list(OPTIONS))
@torch.no_grad()
def test_a_mixture_of_few_tokens(options: dict[str, Any], weigh_input: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option of the experts has the value of the loop over them, whichever way the layer takes; also by the kernel."""
    torch.manual_seed(0)
    config = FeedForwardConfig.model_validate({"width": 24, **options})
    experts = Experts(config, EXPERTS, 32, weigh_input=weigh_input).to(DEVICE)
    for parameter in experts.parameters():
        parameter.normal_(0, 0.5)
    x, _, _, indices, weights = make(4, 3, 32, 1, torch.float32, False)
    experts.backend = "loop"
    expected = experts(x[:, 0], indices, weights)
    experts.backend = "grouped"
    ways = [experts(x[:, 0], indices, weights)]
    monkeypatch.setattr(Experts, "_are_few", lambda *_: True)
    ways.append(experts(x[:, 0], indices, weights))
    monkeypatch.setattr(module, "chosen_linear", launch_linear)
    monkeypatch.setattr(module, "chosen_sum", launch_sum)
    ways.append(experts(x[:, 0], indices, weights))
    for found in ways:
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


def test_only_what_it_names() -> None:
    with FakeTensorMode():
        x, weight = torch.empty(2, 16, device="cuda"), torch.empty(8, 4, 16, device="cuda")
        experts = torch.zeros(2, 4, dtype=torch.long, device="cuda")
        assert not kernel_allowed(x, weight, experts), "gradients"
        with torch.no_grad():
            assert kernel_allowed(x, weight, experts)
            assert not kernel_allowed(x, weight.new_empty(7, 4, 16), experts), "more choices than experts"
            assert not kernel_allowed(x, weight, experts.new_empty(0, 4)), "none"
            assert not kernel_allowed(x.double(), weight.double(), experts)
            assert not kernel_allowed(x.bfloat16(), weight, experts)
            assert not kernel_allowed(x, torch.empty_strided((8, 4, 16), (64, 1, 4), device="cuda"), experts), "columns"
            assert not kernel_allowed(x.new_empty(2, 16, device="cpu"), weight, experts)


def test_a_share_of_the_experts_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expert parallelism: a rank has some of the experts, and the others' rows must be sent."""
    monkeypatch.setattr(module, "kernel_allowed", lambda *_: True)
    experts = Experts(FeedForwardConfig(width=8), EXPERTS, 8)
    x, indices = torch.zeros(1, 8), torch.zeros(1, 2, dtype=torch.long)
    assert experts._are_few(x, indices)
    experts.gate_up = torch.nn.Parameter(experts.get_parameter("gate_up")[:4].detach())
    assert not experts._are_few(x, indices)
