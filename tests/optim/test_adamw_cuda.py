"""The optimizer on a CUDA device is torch's fused AdamW, with steps that are skipped and gradients that are scaled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from ingot.optim.adamw import AdamW

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SETTINGS: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.3, "betas": (0.9, 0.999)}


def test_the_optimizer_with_skipped_steps() -> None:
    """Bit for bit; torch's also stays near to itself in float64. States have torch's names."""
    generator = torch.Generator().manual_seed(1)
    exact = [nn.Parameter(torch.randn(size, generator=generator).double()) for size in (50_004, 100, 33)]
    single, ours = ([nn.Parameter(each.detach().float().cuda()) for each in exact] for _ in range(2))
    peers = [
        torch.optim.AdamW(exact, **SETTINGS, eps=1e-6),
        torch.optim.AdamW(single, **SETTINGS, eps=1e-6, fused=True),
    ]
    optimizer = AdamW([{"params": ours, "epsilon": 1e-6, **SETTINGS}])
    for number in range(4):
        skipped = number == 2
        for one, *others in zip(ours, exact, single, strict=True):
            gradient = torch.randn(one.shape, generator=generator)
            one.grad = (torch.full_like(gradient, torch.nan) if skipped else 4 * gradient).cuda()
            for other in others:
                other.grad = gradient.to(other.device, other.dtype)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0).cuda(), torch.tensor(float(skipped)).cuda()
        optimizer.step()
        for peer in () if skipped else peers:
            peer.step()
    for one, near, true in zip(ours, single, exact, strict=True):
        assert torch.equal(one, near)
        torch.testing.assert_close(one.detach().cpu().double(), true.detach(), atol=2e-6, rtol=0)
        state = optimizer.state[one]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"} and float(state["step"]) == 3
