"""The loop that adds and norms on the CPU against torch's norm of the sum, in float64."""

from __future__ import annotations

import pytest
import torch

from ingot.model.norm import NormConfig, RmsNorm
from ingot.model.norm_numba import add_norm, add_norm_can


@pytest.mark.parametrize("zero_centred", [False, True])
@pytest.mark.parametrize("width", [1, 50, 576])
@torch.no_grad()
def test_sum_and_norm(width: int, zero_centred: bool) -> None:
    norm = RmsNorm(width, NormConfig(zero_centred=zero_centred))
    assert norm.gain is not None
    torch.nn.init.normal_(norm.gain)
    x, y = torch.randn(2, 3, 7, width) * 10
    assert add_norm_can(norm, x)
    gain = norm.gain.double() + zero_centred
    for added in (y, None, y.transpose(0, 1).contiguous().transpose(0, 1)):
        total, normed = add_norm(x, added, norm)
        assert torch.equal(total, x if added is None else x + added)
        wanted = torch.nn.functional.rms_norm(total.double(), (width,), gain, norm.epsilon)
        torch.testing.assert_close(normed.double(), wanted, rtol=1e-6, atol=1e-6)
    assert add_norm(x, None, norm)[0] is x


@torch.no_grad()
def test_what_is_not_a_number_stays_so() -> None:
    x = torch.randn(3, 40)
    x[1, 7] = float("nan")
    _, normed = add_norm(x, torch.zeros(3, 40), RmsNorm(40, NormConfig()))
    assert normed.isnan().all(dim=1).tolist() == [False, True, False]


def test_what_it_can() -> None:
    norm, x = RmsNorm(8, NormConfig()), torch.randn(2, 8)
    assert not add_norm_can(norm, x)  # gradients could be asked for
    with torch.no_grad():
        assert add_norm_can(norm, x)
        assert not add_norm_can(norm, x.bfloat16())
        assert not add_norm_can(RmsNorm(8, NormConfig()).double(), x)
        assert not add_norm_can(RmsNorm(8, NormConfig(), gain=False), x)
