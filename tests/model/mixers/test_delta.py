"""The gated delta rule: chunks, single tokens and transformers' recurrences are the same function."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.models.kimi_linear.modeling_kimi_linear import recurrent_kimi_delta_attention
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

from ingot.kernels.linear.delta_rule import channel_products, chunked, head_products, step
from ingot.model.context import Context
from ingot.model.mixers.delta import delta_rule, unit
from ingot.model.mixers.recurrent import chunks_of
from tests.model.mixers.recurrent_cases import assert_near, plain_context, random_input

LENGTHS = (1, 2, 7, 63, 64, 65, 128, 200)


def inputs(length: int, channels: bool, strength: float = 1.0) -> list[Tensor]:
    """Queries, keys, values, decays, β and a first state. One decay per head: 3 groups of 2 heads; per channel: 3 heads."""
    heads = 3 if channels else 6
    shapes = (
        (2, length, 3, 5),
        (2, length, 3, 5),
        (2, length, heads, 4),
        (2, length, heads, 5 if channels else 1),
        (2, length, heads),
        (2, heads, 5, 4),
    )
    made = [random_input(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    made[1], made[3], made[4] = unit(made[1]), -strength * made[3].abs(), made[4].sigmoid()
    return [x.requires_grad_() for x in made]


def in_chunks(given: list[Tensor]) -> tuple[Tensor, Tensor]:
    q, k, v, decay, beta, state = given
    return chunked(q, k, v, decay, beta, state, chunks_of(plain_context(*q.shape[:2])))


def rule(given: list[Tensor]) -> Tensor:
    q, k, v, decay, beta = given
    return delta_rule(q, k, v, decay, beta, Context(torch.arange(q.shape[1], device=q.device).expand(q.shape[:2])))


def recurrent(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    outputs = []
    for t in range(q.shape[1]):
        output, state = step(q[:, t], k[:, t], v[:, t], decay[:, t], beta[:, t], state)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("channels", [False, True], ids=["head", "channel"])
@pytest.mark.parametrize("strength", [0.1, 5.0])
def test_chunks_equal_single_tokens(length: int, channels: bool, strength: float) -> None:
    given = inputs(length, channels, strength)
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


@pytest.mark.parametrize("channels", [False, True], ids=["head", "channel"])
def test_a_token_is_the_formula(channels: bool) -> None:
    """S = (I − β k kᵀ) Diag(e^g) S + β k vᵀ, with the matrices written out."""
    q, k, v, g, beta, state = (x.detach() for x in inputs(1, channels))
    mixed, after = step(q[:, 0], k[:, 0], v[:, 0], g[:, 0], beta[:, 0], state)
    heads = v.shape[2]
    for row in range(2):
        for head in range(heads):
            key, share = k[row, 0, head * 3 // heads], beta[row, 0, head]
            forget = torch.diag(g[row, 0, head].exp().expand(5))
            expected = (torch.eye(5, dtype=torch.float64) - share * torch.outer(key, key)) @ forget @ state[row, head]
            expected = expected + share * torch.outer(key, v[row, 0, head])
            assert_near(after[row, head], expected, 1e-13)
            assert_near(mixed[row, head], expected.T @ q[row, 0, head * 3 // heads], 1e-13)


@pytest.mark.parametrize("channels", [False, True], ids=["head", "channel"])
def test_equal_to_the_recurrences_of_transformers(channels: bool) -> None:
    q, k, v, g, beta, state = (x.detach().float() for x in inputs(130, channels))
    mine, after = chunked(q, k, v, g, beta, state, chunks_of(plain_context(2, 130)))
    share = v.shape[2] // k.shape[2]
    q, k = (x.repeat_interleave(share, dim=2) for x in (q, k))
    reference = recurrent_kimi_delta_attention if channels else torch_recurrent_gated_delta_rule
    decay = g if channels else g[..., 0]
    expected, expected_after = reference(q * 5**0.5, k, v, decay, beta, initial_state=state, output_final_state=True)
    assert_near(mine, expected, 1e-5)
    assert_near(after, expected_after, 1e-5)


def test_channel_products_equal_the_factors_written_out() -> None:
    query, key = random_input(2, 3, 1, 2, 16, 5), random_input(2, 3, 1, 2, 16, 5, seed=2)
    total = -random_input(2, 3, 1, 2, 16, 5, seed=3).abs().cumsum(-2)
    visible = torch.ones(16, 16, dtype=torch.bool).tril()
    factor = (total[..., :, None, :] - total[..., None, :, :]).exp()
    for found, rows in zip(channel_products(query, key, total, visible), (query, key), strict=True):
        expected = (rows[..., :, None, :] * key[..., None, :, :] * factor).sum(-1).tril()
        assert_near(found, expected, 1e-13)
    same = total[..., :1].expand_as(total)  # the same decay in every channel is a decay per head
    for one, two in zip(
        channel_products(query, key, same, visible), head_products(query, key, total[..., :1], visible), strict=True
    ):
        assert_near(one, two, 1e-13)


@pytest.mark.parametrize("channels", [False, True], ids=["head", "channel"])
def test_strong_decays_stay_finite(channels: bool) -> None:
    """Some channels forget everything at once, others nothing: e^{+cumsum} would overflow float32 at the second token."""
    given = [x.detach().float() for x in inputs(100, channels)]
    given[3] = torch.where(random_input(*given[3].shape, seed=4) > 0, -60.0, -1e-3).float()
    exact = recurrent(*(x.double() for x in given))
    given = [x.requires_grad_() for x in given]
    mine = in_chunks(given)
    for one, two in zip(mine, exact, strict=True):
        assert_near(one.double(), two, 1e-6)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(mine[0].sum() + mine[1].sum(), given))


@pytest.mark.parametrize("channels", [False, True], ids=["head", "channel"])
def test_repeated_keys_do_not_blow_up(channels: bool) -> None:
    """The same key 64 times with β = 1 and no decay: powers of A would reach 10¹⁸, the solution stays at the values."""
    q, k, v, g, beta, state = (x.detach().float() for x in inputs(128, channels))
    k = k[:, :1].expand_as(k)
    mine, after = chunked(q, k, v, 0 * g, torch.ones_like(beta), state, chunks_of(plain_context(2, 128)))
    exact, exact_after = recurrent(*(x.double() for x in (q, k, v, 0 * g, torch.ones_like(beta), state)))
    assert_near(mine.double(), exact, 1e-5)
    assert_near(after.double(), exact_after, 1e-5)


@pytest.mark.parametrize("length", [1, 40])
def test_autocast_and_low_precision_do_not_reach_the_state(length: int) -> None:
    given = [x.detach().to(torch.bfloat16) for x in inputs(length, True)[:5]]
    exact = rule([x.float() for x in given])
    with torch.autocast("cpu", torch.bfloat16):
        mixed = rule(given)
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, exact)


def test_runs_on_the_meta_device() -> None:
    given = [x.detach().to("meta") for x in inputs(70, True)[:5]]
    assert rule(given).shape == (2, 70, 3, 4)
