"""The compiled loops of training on a CPU against torch's own operators in float64: values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm, scaled_dot_product_attention, silu

from ingot.model import norm_team, team
from ingot.model.embedding_team import look_up
from ingot.model.feed_forward import gated_team
from ingot.model.loops import largest_of
from ingot.model.mixers import attend_square
from ingot.model.positions import rope_team
from ingot.model.rooms import kept_rooms

pytestmark = pytest.mark.skipif(team.openmp() is None, reason="torch has another OpenMP library here")


def agree(ours: Callable[..., Tensor], theirs: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
    """Same output and same gradients of all inputs, up to what float32 rounds away."""
    generator = torch.Generator().manual_seed(0)
    exact = [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]
    inputs = [each.detach().float().requires_grad_() for each in exact]
    wanted, found = theirs(*exact), ours(*inputs)
    assert found.grad_fn is not None and found.shape == wanted.shape
    up = torch.randn(wanted.shape, dtype=torch.float64, generator=generator)
    pairs = [(found, wanted)]
    pairs += zip(torch.autograd.grad(found, inputs, up.float()), torch.autograd.grad(wanted, exact, up), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5 * float(other.detach().abs().max()))


def test_gated_activation() -> None:
    def theirs(projected: Tensor) -> Tensor:
        gate, up = projected.chunk(2, dim=-1)
        return silu(gate) * up

    agree(gated_team.gated_silu, theirs, (2, 3, 54))
    big = torch.tensor([[200.0, -200.0, 1.0, 1.0]], requires_grad=True)  # exponentials that float32 cannot hold
    gated_team.gated_silu(big).sum().backward()
    assert big.grad is not None
    torch.testing.assert_close(big.grad, torch.tensor([[1.0, 0.0, 200.0, 0.0]]))


def test_norm() -> None:
    x, gain, up, more = (torch.randn(size) for size in ((2, 5, 37), (37,), (2, 5, 37), (2, 5, 37)))
    exact = [each.double().requires_grad_() for each in (x, gain)]
    wanted = rms_norm(exact[0], (37,), exact[1], 1e-3)
    d_x, d_gain = torch.autograd.grad(wanted, exact, up.double())
    size, found = (10, 37), [torch.empty_like(each) for each in (x, x, gain, x)]
    team.run(*norm_team.norm_forward(x, gain, found[0], size, 1e-3, found[3]))
    team.run(*norm_team.norm_backward(x, gain, up, found[1], found[2], size, 1e-3, more))
    for one, other in zip(found, (wanted.detach(), d_x + more, d_gain, x.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
    x[0, 3, 7] = float("nan")
    team.run(*norm_team.norm_forward(x, gain, found[0], size, 1e-3))
    assert found[0].isnan().all(-1).sum() == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_an_embedding(threads: int) -> None:
    """Some tokens come often, some not at all; the gradient is torch's to the bit, whatever memory held before."""
    weight, tokens = torch.randn(50, 37, requires_grad=True), torch.randint(40, (3, 60))
    up, before = torch.randn(3, 60, 37), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with kept_rooms():
            for _ in range(2):
                found = look_up(tokens, weight)
                (gradient,) = torch.autograd.grad(found, weight, up)
                assert "LookUp" in type(found.grad_fn).__name__
                gradient.add_(1.0)  # the room is used again
                wanted = embedding(tokens, weight)
                assert torch.equal(found, wanted)
                assert torch.equal(gradient, torch.autograd.grad(wanted, weight, up)[0] + 1.0)
    finally:
        torch.set_num_threads(before)
    assert "LookUp" not in type(look_up(tokens, weight).grad_fn).__name__  # no training run


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("nan")])
def test_largest(wrong: float) -> None:
    x = torch.randn(517)
    assert largest_of(x.numpy()) == x.max() and largest_of((-x.abs()).numpy()) == (-x.abs()).max()
    x[300] = wrong
    assert (largest_of(x.numpy()) == wrong) if wrong == wrong else math.isnan(largest_of(x.numpy()))


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation(interleaved: bool) -> None:
    angle_BT1R = torch.rand(2, 1, 5, 4, dtype=torch.float64) * 6

    def theirs(x_BTHW: Tensor) -> Tensor:
        pairs = x_BTHW.transpose(1, 2)
        pairs = pairs.unflatten(-1, (4, 2)) if interleaved else pairs.unflatten(-1, (2, 4)).mT
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.exp(1j * angle_BT1R))
        return turned.flatten(-2) if interleaved else turned.mT.flatten(-2)

    def ours(x_BTHW: Tensor) -> Tensor:
        cos, sin = angle_BT1R.cos().float(), angle_BT1R.sin().float()
        assert rope_team.rotate_can(x_BTHW.transpose(1, 2), cos)
        return rope_team.rotate(x_BTHW.transpose(1, 2), cos, sin, interleaved)

    agree(ours, theirs, (2, 5, 3, 8))


@pytest.mark.skipif(not attend_square.IS_ARM, reason="the tiles are made for ARM")
@pytest.mark.parametrize(
    ("rows", "heads", "key_heads", "tokens", "width"), [(2, 4, 2, 96, 32), (1, 3, 3, 70, 16), (3, 2, 1, 1, 48)]
)
def test_square_attention(rows: int, heads: int, key_heads: int, tokens: int, width: int) -> None:
    """Also with a block that is not full, and with heads that are slices of a larger tensor."""
    sizes = (heads * width, key_heads * width, key_heads * width)

    def parts(projected: Tensor) -> list[Tensor]:
        return [part.unflatten(-1, (-1, width)).transpose(1, 2) for part in projected.split(sizes, dim=-1)]

    def theirs(projected: Tensor) -> Tensor:
        query, key, value = parts(projected)
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=0.3, enable_gqa=True)

    def ours(projected: Tensor) -> Tensor:
        query, key, value = parts(projected)
        return attend_square.attend_square(query, key, value, scale=0.3)

    agree(ours, theirs, (rows, tokens, sum(sizes)))


@pytest.mark.skipif(not attend_square.IS_ARM, reason="the tiles are made for ARM")
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_no_number_stays_none(wrong: float) -> None:
    """The guards of a run look for it: loops that lose it would train on."""
    query, key, value = (torch.randn(1, 2, 70, 16) for _ in range(3))
    query[0, 1, 5, 3] = wrong
    mixed = attend_square.attend_square(query.requires_grad_(), key, value, scale=0.3)
    bad = mixed.isnan().any(-1)
    assert bad[0, 1, 5] and bad.sum() == 1  # only the query's own row
    gradients = torch.autograd.grad(mixed.sum(), query)
    assert gradients[0][0, 1, 5].isnan().all()
    gate = torch.tensor([[wrong, 1.0, 1.0, 1.0]], requires_grad=True)
    assert not gated_team.gated_silu(gate)[0, 0].isfinite()


def test_nobody_differentiates_twice() -> None:
    x = torch.randn(2, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(gated_team.gated_silu(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_who_is_taken() -> None:
    x = torch.ones(4, 8, requires_grad=True)
    assert team.team_can(x)
    assert not team.team_can(x.double()) and not team.team_can(x.to("meta"))
    with torch.no_grad():
        assert not gated_team.gated_can(x)
