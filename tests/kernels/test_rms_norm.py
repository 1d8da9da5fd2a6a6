"""Residual sum and norm in one kernel, values and gradients, against torch's own operations in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_rms_norm.py
"""

from __future__ import annotations

import copy
import os

import pytest
import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from ingot.kernels import rms_norm as operation
from ingot.model.block import Block
from ingot.model.config import BlockConfig
from ingot.model.context import Context
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig, RmsNorm
from ingot.model.transformer import Transformer

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels import rms_norm_kernel  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPSILON = 1e-5


def close(found: Tensor, exact: Tensor, steps: float) -> None:
    """Within `steps` roundings to bfloat16 or float16 of the largest value of a row, and those of float32."""
    bound = steps * exact.abs().amax(-1, keepdim=True) + 1e-6 if exact.numel() else exact
    assert bool(((found.detach().cpu().double() - exact.detach()).abs() <= bound).all())


@pytest.mark.parametrize("adds", [False, True], ids=["alone", "sum"])
@pytest.mark.parametrize("cast", ["before_gain", "after_gain"])
@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize(("rows", "width"), [(5, 64), (67, 48), (0, 32)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_values_and_gradients(
    rows: int, width: int, dtype: torch.dtype, zero_centred: bool, cast: str, adds: bool
) -> None:
    generator = torch.Generator().manual_seed(width + rows)
    x, y, of_total, of_normed = (torch.randn(rows, width, generator=generator).to(dtype) for _ in range(4))
    norm = RmsNorm(width, NormConfig(epsilon=EPSILON, cast=cast, zero_centred=zero_centred))
    assert norm.gain is not None
    with torch.no_grad():
        norm.gain.add_(0.3 * torch.randn(width, generator=generator))
    norm = norm.to(DEVICE)
    given, added = x.to(DEVICE).requires_grad_(), y.to(DEVICE).requires_grad_()
    rules = norm.used_gain(), norm.epsilon, norm.round_first
    if adds:
        found, normed = rms_norm_kernel.run_add(given, added, *rules)
    else:
        found, normed = given.view_as(given), rms_norm_kernel.run(given, *rules)
    torch.autograd.backward((found, normed), (of_total.to(DEVICE), of_normed.to(DEVICE)))
    assert found.dtype == normed.dtype == dtype and found.shape == normed.shape == x.shape
    assert given.grad is not None and norm.gain is not None and norm.gain.grad is not None
    assert given.grad.dtype == dtype and norm.gain.grad.dtype == torch.float32

    eps = torch.finfo(dtype).eps
    close(found, (x.double() + y.double()) if adds else x.double(), eps)
    total = found.detach().cpu().double().requires_grad_()  # rounded, as the norm sees it
    gain = norm.gain.detach().cpu().double().requires_grad_()
    wanted = rms_norm(total, (width,), 1 + gain if zero_centred else gain, EPSILON)
    torch.autograd.backward((total, wanted), (of_total.double(), of_normed.double()))
    assert total.grad is not None and gain.grad is not None
    roundings = 3 if cast == "before_gain" else 1  # of the gain, the quotient and the product
    close(normed, wanted, roundings * eps)
    close(given.grad, total.grad, (roundings if adds else roundings + 1) * eps)  # alone, autograd adds two gradients
    close(norm.gain.grad, gain.grad, 2 * eps if cast == "before_gain" else 1e-5)
    if adds:
        assert added.grad is not None and torch.equal(added.grad, given.grad)


def test_the_sum_of_gains_is_the_same_every_time() -> None:
    torch.manual_seed(0)
    total, of_total, of_normed = (torch.randn(140, 32).bfloat16().to(DEVICE) for _ in range(3))
    gain = torch.rand(32, device=DEVICE)
    given = total, of_total, of_normed, gain, EPSILON, True
    first, second = (rms_norm_kernel.rms_norm_backward(*given)[1] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("adds", [False, True], ids=["alone", "sum"])
def test_the_operators_as_torch_wants_them(adds: bool) -> None:
    """Schema, shapes without data, and tracing with static and dynamic shapes."""
    x, y, of_total, of_normed = (torch.randn(2, 3, 32).bfloat16().to(DEVICE) for _ in range(4))
    gain = torch.rand(32, device=DEVICE)
    if adds:
        torch.library.opcheck(rms_norm_kernel.add_rms_norm_forward, (x, y, gain, EPSILON, True))
    else:
        torch.library.opcheck(rms_norm_kernel.rms_norm_forward, (x, gain, EPSILON, True))
    given = (x, of_total if adds else None, of_normed, gain, EPSILON, True)
    torch.library.opcheck(rms_norm_kernel.rms_norm_backward, given)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_stack_with_it_equals_one_without(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All gradients are as near to float64 as without: in bfloat16 on a GPU, in float32 in the interpreter."""
    config = BlockConfig.model_validate(
        {
            "mixer": {"kind": "attention", "heads": 4, "key_value_heads": 2, "head_width": 8},
            "feed_forward": {"kind": "dense", "width": 48},
        }
    )
    torch.manual_seed(0)
    exact = torch.nn.ModuleList(Block(config, Site(40, layer, 3, NormConfig())) for layer in range(3)).double()
    norm = RmsNorm(40, NormConfig()).double()
    x = torch.randn(2, 7, 40, dtype=torch.float64, requires_grad=True)
    positions = torch.arange(7).expand(2, 7)
    weights = torch.randn(2, 7, 40, dtype=torch.float64)
    (Transformer.run_blocks(x, Context(positions), exact, norm=norm) * weights).sum().backward()
    wanted = [each.grad for each in (x, *exact.parameters(), *norm.parameters())]

    taken: list[bool] = []
    errors = []
    torch._dynamo.reset()
    for with_it in (True, False):

        def allowed(x: Tensor, gain: Tensor | None, with_it: bool = with_it) -> bool:
            taken.append(with_it)
            return with_it  # the interpreter's tensors are on the CPU

        monkeypatch.setattr(operation, "kernel_allowed", allowed)
        blocks, last = copy.deepcopy(exact).float().to(DEVICE), copy.deepcopy(norm).float().to(DEVICE)
        given = x.detach().float().to(DEVICE).requires_grad_()
        if compiled:
            for each in blocks:
                each.compile(dynamic=False, fullgraph=True, backend="inductor" if DEVICE == "cuda" else "aot_eager")
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            entering = given.bfloat16() if DEVICE == "cuda" else given
            out = Transformer.run_blocks(entering, Context(positions.to(DEVICE)), blocks, norm=last)
        (out.float() * weights.float().to(DEVICE)).sum().backward()
        found = [each.grad for each in (given, *blocks.parameters(), *last.parameters())]
        errors.append([_distance(ours, theirs) for ours, theirs in zip(found, wanted, strict=True)])
    assert set(taken) == {True, False}
    bound = 0.03 if DEVICE == "cuda" else 1e-5
    assert max(errors[0]) < bound
    assert all(ours <= 1.5 * theirs + bound / 10 for ours, theirs in zip(*errors, strict=True))


def _distance(found: Tensor | None, exact: Tensor | None) -> float:
    assert found is not None and exact is not None
    return float((found.cpu().double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32])
@pytest.mark.parametrize("zero_centred", [False, True])
@torch.no_grad()
def test_without_gradients(dtype: torch.dtype, zero_centred: bool) -> None:
    """Decoding launches the kernel directly, also in float32."""
    norm = RmsNorm(50, NormConfig(zero_centred=zero_centred, cast="after_gain" if zero_centred else "before_gain"))
    norm = norm.to(DEVICE, dtype)
    assert norm.gain is not None
    torch.nn.init.normal_(norm.gain)
    x, y = torch.randn(2, 3, 7, 50, device=DEVICE, dtype=dtype)
    rules = norm.used_gain(), norm.epsilon, norm.round_first
    tolerance = {"atol": 2e-6 if dtype == torch.float32 else 0.02, "rtol": 1e-5}
    total, normed = rms_norm_kernel.run_add(x, y, *rules)
    assert torch.equal(total, x + y)
    torch.testing.assert_close(normed, operation.rms_norm_definition(x + y, *rules), **tolerance)
    torch.testing.assert_close(rms_norm_kernel.run(x, *rules), operation.rms_norm_definition(x, *rules), **tolerance)
