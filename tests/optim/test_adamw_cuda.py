"""The kernel against torch's AdamW, in float32 and float64.

On a CUDA device, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/optim/test_adamw_cuda.py
"""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.optim.adamw import LARGE, AdamW
from ingot.optim.adamw_triton import BLOCK, adamw_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SETTINGS: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.3, "betas": (0.9, 0.999)}


def assert_as_exact(found: Tensor, single: Tensor, exact: Tensor) -> None:
    """No further from float64 than torch in float32 is, but for half a unit in the last place."""
    exact = exact.detach()
    ours, theirs = (float((each.detach().cpu().double() - exact).abs().max()) for each in (found, single))
    assert ours <= theirs + torch.finfo(torch.float32).eps / 2 * float(exact.abs().max())


@pytest.mark.parametrize("count", [7, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95)])
def test_steps_are_those_of_torch(count: int, betas: tuple[float, float]) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(count, generator=generator)
    exact, single = (nn.Parameter(start.to(dtype)) for dtype in (torch.float64, torch.float32))
    peers = [torch.optim.AdamW([each], **SETTINGS | {"betas": betas, "eps": 1e-6}) for each in (exact, single)]
    parameter = start.clone().to(DEVICE)
    first, second, step = torch.zeros_like(parameter), torch.zeros_like(parameter), torch.zeros((), device=DEVICE)
    for number in range(4):
        gradient = torch.randn(count, generator=generator) * 10.0 ** (-2 * number)
        for each, peer in zip((exact, single), peers, strict=True):
            each.grad = gradient.to(each.dtype)
            peer.step()
        step += 1
        scale = torch.tensor(4.0, device=DEVICE) if number % 2 else None
        given = gradient.to(DEVICE) if scale is None else 4 * gradient.to(DEVICE)
        adamw_triton(
            parameter,
            given,
            first,
            second,
            step,
            rate=0.01,
            decay=0.3,
            betas=betas,
            epsilon=1e-6,
            grad_scale=scale,
        )
    assert_as_exact(parameter, single, exact)
    for name, moment in (("exp_avg", first), ("exp_avg_sq", second)):
        assert_as_exact(moment, peers[1].state[single][name], peers[0].state[exact][name])


def test_a_skipped_step_writes_nothing() -> None:
    tensors = [torch.randn(BLOCK + 1, device=DEVICE).abs() for _ in range(4)]
    before = copy.deepcopy(tensors)
    parameter, gradient, first, second = tensors
    gradient.fill_(torch.nan)
    step, one = torch.ones((), device=DEVICE), torch.ones((), device=DEVICE)
    adamw_triton(
        parameter, gradient, first, second, step, rate=0.01, decay=0.3, betas=(0.9, 0.99), epsilon=1e-6, found_inf=one
    )
    assert all(torch.equal(tensors[place], before[place]) for place in (0, 2, 3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_large_and_small_parameters_with_skipped_steps() -> None:
    """The optimizer, which sends large parameters to the kernel, against torch's on the CPU; states have torch's names."""
    generator = torch.Generator().manual_seed(1)
    exact = [nn.Parameter(torch.randn(size, generator=generator).double()) for size in (LARGE + 3, 100)]
    single = [nn.Parameter(each.detach().float()) for each in exact]
    ours = [nn.Parameter(each.detach().cuda()) for each in single]
    peers = [torch.optim.AdamW(each, **SETTINGS, eps=1e-6) for each in (exact, single)]
    optimizer = AdamW([{"params": ours, "epsilon": 1e-6, **SETTINGS}])
    for number in range(4):
        skipped = number == 2
        for one, *others in zip(ours, exact, single, strict=True):
            gradient = torch.randn(one.shape, generator=generator)
            one.grad = (torch.full_like(gradient, torch.nan) if skipped else 4 * gradient).cuda()
            for other in others:
                other.grad = gradient.to(other.dtype)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0).cuda(), torch.tensor(float(skipped)).cuda()
        optimizer.step()
        for peer in () if skipped else peers:
            peer.step()
    for one, near, true in zip(ours, single, exact, strict=True):
        assert_as_exact(one, near, true)
        state = optimizer.state[one]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"} and float(state["step"]) == 3
