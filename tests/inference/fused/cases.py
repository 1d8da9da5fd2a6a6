"""Streams and layers of odd sizes, and what the kernels shall make of them, in float64 by the definitions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, silu

from ingot.inference.fused.product import add_product, begin, project, project_gated
from ingot.model.linear import Linear
from ingot.model.norm import NormConfig, RmsNorm


@dataclass(frozen=True)
class Case:
    rows: int
    width: int
    outputs: int
    bias: bool = False
    zero_centred: bool = False


CASES = [Case(1, 64, 16), Case(5, 96, 40, bias=True), Case(64, 576, 100), Case(33, 200, 24, True, True)]


def check(case: Case, dtype: torch.dtype, device: str, tolerance: float) -> None:
    """norm → product, norm → gated product → product + stream, and the norm of what that gives, against float64."""
    torch.manual_seed(case.rows)
    config = NormConfig(zero_centred=case.zero_centred)
    first, second = (RmsNorm(case.width, config).to(device, dtype) for _ in range(2))
    plain = Linear(case.width, case.outputs, bias=case.bias).to(device, dtype)
    gated = Linear(case.width, 2 * case.outputs, bias=case.bias).to(device, dtype)
    back = Linear(case.outputs, case.width, bias=case.bias).to(device, dtype)
    with torch.no_grad():
        for norm in (first, second):
            assert norm.gain is not None
            norm.gain.add_(0.3 * torch.randn_like(norm.gain))
    x = 3 * torch.randn(case.rows, case.width, device=device, dtype=dtype)

    with torch.inference_mode():
        stream = begin(x, first)
        compare(project(stream, first, plain), linear(normed(x, first), plain), tolerance)
        inner = project_gated(stream, first, gated)
        gate, up = linear(normed(x, first), gated).chunk(2, dim=-1)
        compare(inner, silu(gate) * up, tolerance)
        # from here on what the kernels themselves wrote is what comes in: errors do not add up
        stream = add_product(stream, inner, back, second)
        compare(stream.x, x.double() + linear(inner.double(), back), tolerance)
        compare(project(stream, second, plain), linear(normed(stream.x, second), plain), tolerance)


def normed(x: Tensor, norm: RmsNorm) -> Tensor:
    assert norm.gain is not None
    gain = norm.gain.double() + norm.config.zero_centred
    return rms_norm(x.double(), (x.shape[1],), gain, norm.epsilon)


def linear(x: Tensor, layer: Linear) -> Tensor:
    bias = 0.0 if layer.bias is None else layer.bias.double()
    return x @ layer.weight.double().T + bias


def compare(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
