"""The decaying state: chunks, single tokens and the written-out sum are the same function."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ingot.kernels.linear.decayed_attention import chunked, step
from ingot.model.context import Context
from ingot.model.mixers.linear_attention import linear_attention
from ingot.model.mixers.recurrent import chunks_of
from tests.model.mixers.recurrent_cases import assert_near, plain_context, random_input

LENGTHS = (1, 2, 7, 63, 64, 65, 128, 200)


def inputs(length: int, strength: float = 1.0) -> list[Tensor]:
    """Queries, keys, values, decays and a first state: two rows, 3 groups of 2 heads, keys of 5, values of 4."""
    shapes = ((2, length, 3, 5), (2, length, 3, 5), (2, length, 6, 4), (2, length, 6), (2, 6, 5, 4))
    made = [random_input(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    made[3] = -strength * made[3].abs()
    return [x.requires_grad_() for x in made]


def in_chunks(given: list[Tensor], size: int = 64) -> tuple[Tensor, Tensor]:
    query, key, value, decay, state = given
    return chunked(query, key, value, decay, state, chunks_of(plain_context(*query.shape[:2]), size))


def attend(given: list[Tensor]) -> Tensor:
    query, key, value, decay = given
    positions = torch.arange(query.shape[1], device=query.device).expand(query.shape[:2])
    return linear_attention(query, key, value, decay, Context(positions))


def recurrent(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for t in range(query.shape[1]):
        output, state = step(query[:, t], key[:, t], value[:, t], decay[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


def written_out(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor) -> Tensor:
    """o_i = Σ_{j ≤ i} e^{g_{j+1} + … + g_i} (q_i·k_j) v_j + e^{g_1 + … + g_i} Sᵀ q_i, head by head."""
    heads = value.shape[2]
    share = heads // key.shape[2]
    out = torch.zeros_like(value)
    for row in range(value.shape[0]):
        for head in range(heads):
            q, k, v, g = (
                query[row, :, head // share],
                key[row, :, head // share],
                value[row, :, head],
                decay[row, :, head],
            )
            for i in range(len(q)):
                out[row, i, head] = g[: i + 1].sum().exp() * (q[i] @ state[row, head])
                for j in range(i + 1):
                    out[row, i, head] += g[j + 1 : i + 1].sum().exp() * (q[i] @ k[j]) * v[j]
    return out


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("strength", [0.1, 5.0])
def test_chunks_equal_single_tokens(length: int, strength: float) -> None:
    given = inputs(length, strength)
    mine = in_chunks(given)
    other = recurrent(*given)
    weights = [random_input(*x.shape, seed=8) for x in other]
    for one, two in zip(mine, other, strict=True):
        assert_near(one, two, 1e-10)
    found, expected = (
        torch.autograd.grad([(x * w).sum() for x, w in zip(pair, weights, strict=True)], given)
        for pair in (mine, other)
    )
    for one, two in zip(found, expected, strict=True):
        assert_near(one, two, 1e-10)


def test_chunks_equal_the_sum_written_out() -> None:
    given = [x.detach() for x in inputs(21)]
    for size in (4, 8, 32):
        mine, _ = in_chunks(given, size)
        assert_near(mine, written_out(*given), 1e-12)


def test_strong_decays_stay_finite() -> None:
    """e^{+cumsum} would overflow float32 after two of these tokens."""
    given = [x.detach().float().requires_grad_() for x in inputs(100)]
    given[3] = torch.full_like(given[3], -60.0).requires_grad_()
    mixed, state = in_chunks(given)
    assert mixed.isfinite().all() and state.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(mixed.sum() + state.sum(), given))
    alone = (given[0] * given[1]).sum(-1).repeat_interleave(2, dim=2)[..., None] * given[2]
    assert_near(mixed[:, 2:], alone[:, 2:], 1e-6)  # nothing but the token itself is left


@pytest.mark.parametrize("length", [1, 40])
def test_autocast_and_low_precision_do_not_reach_the_state(length: int) -> None:
    given = [x.detach().to(torch.bfloat16) for x in inputs(length)[:4]]
    exact = attend([x.float() for x in given])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = attend(given)
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, exact)


def test_runs_on_the_meta_device() -> None:
    given = [x.detach().to("meta") for x in inputs(70)[:4]]
    assert attend(given).shape == (2, 70, 6, 4)
