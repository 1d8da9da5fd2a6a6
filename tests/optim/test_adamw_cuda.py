"""The optimizer on a CUDA device against torch's AdamW on the CPU, in float32 and float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ingot.optim.adamw import AdamW

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SETTINGS: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.3, "betas": (0.9, 0.999)}


def assert_as_exact(found: Tensor, single: Tensor, exact: Tensor) -> None:
    """No further from float64 than torch in float32 is, but for half a unit in the last place."""
    exact = exact.detach()
    ours, theirs = (float((each.detach().cpu().double() - exact).abs().max()) for each in (found, single))
    assert ours <= theirs + torch.finfo(torch.float32).eps / 2 * float(exact.abs().max())


def test_the_optimizer_with_skipped_steps() -> None:
    """Against torch's on the CPU; states have torch's names."""
    generator = torch.Generator().manual_seed(1)
    exact = [nn.Parameter(torch.randn(size, generator=generator).double()) for size in (50_004, 100, 33)]
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
