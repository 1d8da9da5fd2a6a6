"""The loop of silu(gate) ⊙ up against torch's in float64."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import silu

from ingot.model.feed_forward.dense import FeedForwardConfig, activate
from ingot.model.feed_forward.gated_numba import gated_silu, gated_silu_can


def test_like_torch() -> None:
    projected = torch.cat((torch.randn(2, 3, 74) * 20, torch.linspace(-90, 90, 222).view(1, 3, 74)))
    gate, up = projected.double().chunk(2, dim=-1)
    torch.testing.assert_close(gated_silu(projected).double(), silu(gate) * up, rtol=1e-6, atol=1e-30)
    assert torch.equal(gated_silu(projected.mT.contiguous().mT), gated_silu(projected))


def test_the_ends_of_the_range() -> None:
    gates = torch.tensor([1e30, -1e30, 0.0, math.inf, math.nan])
    found = gated_silu(torch.cat((gates, torch.ones(5)))).tolist()
    assert found[0] == torch.tensor(1e30).item() and abs(found[1]) < 1e-7 and found[2] == 0 and found[3] == math.inf
    assert math.isnan(found[4])


def test_taken_only_where_nobody_differentiates() -> None:
    config = FeedForwardConfig(width=8)
    projected = torch.randn(2, 16)
    assert not gated_silu_can(projected)
    with torch.inference_mode():
        inside = projected.clone()
        assert gated_silu_can(inside) and not gated_silu_can(inside.double())
        assert torch.equal(activate(config, inside), gated_silu(projected))
        clamped = FeedForwardConfig(width=8, clamp=0.1)
        wanted = silu(projected[:, :8].clamp(max=0.1)) * projected[:, 8:].clamp(-0.1, 0.1)
        assert torch.equal(activate(clamped, inside), wanted)
