"""The router against transformers' routers: logits, the choice, the weights; and what the selection bias may and may not do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ingot.model.feed_forward.router import Router, RouterConfig
from tests.model.feed_forward.peers import EXPERTS, PEERS, WIDTH, Peer


def their_choice(peer: Peer, block: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [N, E], weights [N, K] and indices [N, K] of transformers."""
    match peer.family:
        case "llama4":
            scores, logits = block.router(x)  # type: ignore[operator]
            weights, indices = scores.topk(peer.config["active"])
            return logits, weights, indices
        case "afmoe":
            return block.router(x[None], block.expert_bias)  # type: ignore[operator]
        case "minimax_m2":
            return block.gate(x, block.e_score_correction_bias)  # type: ignore[operator]
        case "gpt_oss":
            return block.router(x)  # type: ignore[operator]
        case _:
            return block.gate(x)  # type: ignore[operator]


@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS.keys())
def test_choice_and_weights_equal_transformers(peer: Peer) -> None:
    block = peer.block(seed=3)
    router = peer.ours(block).router
    x = torch.randn(400, WIDTH, generator=torch.Generator().manual_seed(4))
    found = router(x)
    logits, weights, indices = their_choice(peer, block, x)
    torch.testing.assert_close(found.logits_NE, logits, rtol=1e-5, atol=1e-6)
    order, other = found.indices_NK.argsort(-1), indices.argsort(-1)  # some of theirs are not sorted by weight
    assert torch.equal(found.indices_NK.gather(1, order), indices.gather(1, other))
    torch.testing.assert_close(found.weights_NK.gather(1, order), weights.gather(1, other), rtol=1e-5, atol=1e-7)


def make_router(active: int = 3, **options: Any) -> Router:
    torch.manual_seed(0)
    return Router(RouterConfig.model_validate(options), EXPERTS, active, WIDTH).double()


SCORES = ["softmax", "sigmoid", "top_k_softmax", "sigmoid_input"]


@pytest.mark.parametrize("score", SCORES)
def test_the_selection_bias_changes_the_choice_only(score: str) -> None:
    """Where the biased choice falls on the same experts the weights are the same; the bias gets no gradient."""
    router, x = (
        make_router(score=score, selection_bias=True, renormalise=score == "sigmoid"),
        torch.randn(300, WIDTH).double(),
    )
    plain = router(x)
    assert router.selection_bias is not None and not router.selection_bias.requires_grad
    router.selection_bias.copy_(torch.linspace(-0.1, 0.1, EXPERTS))
    moved = router(x)
    same = (plain.indices_NK.sort(-1).values == moved.indices_NK.sort(-1).values).all(-1)
    assert 0 < same.sum() < len(x)
    torch.testing.assert_close(
        plain.weights_NK[same].sort(-1).values, moved.weights_NK[same].sort(-1).values, rtol=1e-12, atol=0
    )
    assert torch.equal(plain.scores_NE, moved.scores_NE)
    counts = [torch.bincount(r.indices_NK.flatten(), minlength=EXPERTS) for r in (plain, moved)]
    assert counts[1][-3:].sum() > counts[0][-3:].sum() and counts[1][:3].sum() < counts[0][:3].sum()


@pytest.mark.parametrize("value", ["max", "top_two"])
def test_groups_by_brute_force(value: str) -> None:
    """Also with scores below zero, where a masked expert must not win because it is set to 0."""
    router = make_router(
        score="top_k_softmax", selection_bias=True, groups=4, kept_groups=2, group_value=value, active=4
    )
    assert router.selection_bias is not None
    router.selection_bias.copy_(torch.linspace(-9, -8, EXPERTS))
    x = torch.randn(50, WIDTH).double()
    found = router(x)
    for token, chosen in enumerate(found.indices_NK.tolist()):
        scores = (found.scores_NE[token] + router.selection_bias).tolist()
        groups = [sorted(scores[start : start + 3], reverse=True) for start in range(0, EXPERTS, 3)]
        worth = [group[0] if value == "max" else group[0] + group[1] for group in groups]
        kept = sorted(range(4), key=lambda group: -worth[group])[:2]
        allowed = [expert for expert in range(EXPERTS) if expert // 3 in kept]
        assert chosen == sorted(allowed, key=lambda expert: -scores[expert])[:4]


@pytest.mark.parametrize("score", SCORES)
def test_the_distribution_sums_to_one_and_has_the_order_of_the_logits(score: str) -> None:
    router = make_router(score=score)
    found = router(torch.randn(20, WIDTH).double())
    shares = router.distribution(found)
    torch.testing.assert_close(shares.sum(-1), torch.ones(20).double())
    expected = found.logits_NE.softmax(-1) if "softmax" in score else found.logits_NE.sigmoid()
    torch.testing.assert_close(shares, expected / expected.sum(-1, keepdim=True))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a processor without bfloat16
def test_float32_is_independent_of_the_activations() -> None:
    """A float32 router scores bfloat16 activations as if they were float32; without it logits are rounded."""
    x = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(5)).bfloat16()
    exact = make_router().float()
    wide = make_router(float32=True).float()
    with torch.autocast("cpu", torch.bfloat16):
        rounded, kept = exact(x), wide(x)
    assert rounded.logits_NE.dtype == torch.bfloat16 and kept.logits_NE.dtype == torch.float32
    assert torch.equal(kept.logits_NE, x.float() @ wide.weight.T)
    assert rounded.weights_NK.dtype == kept.weights_NK.dtype == torch.float32
