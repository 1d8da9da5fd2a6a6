"""Embedding and head divided by vocabulary: rank r of N has the tokens r·V/N to (r + 1)·V/N − 1 (Megatron-LM, arXiv 1909.08053).

    embedding    a rank looks up its own tokens, zeros for the others; the sum over the ranks is the embedding
    log Z        log Σ_ranks e^(log Z of the rank)
    target       the logit of the rank that has the target, zero on the others; the sum over the ranks
    ∂z           as in fused_head.py, from the log Z of all ranks; every rank's own columns
    ∂states      the sum over the ranks of ∂z · W, one sum for the whole batch (`enter` in ties.py)

Logits are not exchanged: for a chunk of tokens the ranks exchange two numbers per token. Only `divided_logits`, for losses that
are no known sum over tokens and for evaluation, puts whole logits together.

Shapes: N tokens, C tokens of a chunk, D width, V vocabulary of this rank, R ranks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.nn.functional import embedding

from ingot.kernels.head.cross_entropy import spread, summarise
from ingot.model.linear import Embedding
from ingot.model.order import local
from ingot.model.transformer import Transformer
from ingot.train.losses.fused_head import cross_entropy_by
from ingot.train.parallel.ties import all_gather, enter, leave


class DividedEmbedding(Embedding):
    """A row per token of this rank's share of the vocabulary."""

    group: distributed.ProcessGroup

    def forward(self, tokens: Tensor) -> Tensor:
        weight = local(self.weight)
        index = tokens - self.group.rank() * len(weight)
        elsewhere = (index < 0) | (index >= len(weight))
        x = embedding(index.masked_fill(elsewhere, 0), weight)
        return leave(x.masked_fill(elsewhere[..., None], 0), self.group)


def divided_logits(model: Transformer, group: distributed.ProcessGroup, states: Tensor) -> Tensor:
    """The products of states with the whole head, on every rank."""
    return _Join.apply(enter(states, group) @ local(model.head_weight_VD).to(states.dtype).T, group)  # type: ignore[no-untyped-call]


class _Join(torch.autograd.Function):
    """Columns of all ranks one after the other; backward, every rank has the whole gradient and keeps its columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: distributed.ProcessGroup) -> Tensor:
        ctx.group = group
        return torch.cat(all_gather(x, group).unbind(), dim=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.chunk(ctx.group.size(), dim=-1)[ctx.group.rank()].contiguous(), None


def divided_cross_entropy(
    states_ND: Tensor,
    weight_VD: DTensor,
    targets_N: Tensor,
    a_N: Tensor,
    b_N: Tensor | None,
    scale: float,
    softcap: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The result of `linear_cross_entropy` (losses/fused_head.py) from a head that is cut by its rows: the same on all ranks."""
    group, own_VD = weight_VD.device_mesh.get_group(), local(weight_VD)
    copy = own_VD.detach().to(states_ND.dtype)
    targets_N = targets_N - group.rank() * len(own_VD)  # rows of this rank; negative or too large on the others

    def differentiate(
        logits_CV: Tensor, targets_C: Tensor, a_C: Tensor, b_C: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        summaries_R2C = all_gather(summarise(logits_CV, targets_C, scale, softcap), group)
        normalisers_C = summaries_R2C[:, 0].logsumexp(dim=0)
        gradient_CV = spread(logits_CV, targets_C, normalisers_C, a_C, b_C, scale, softcap)
        return summaries_R2C[:, 1].sum(dim=0) - normalisers_C, normalisers_C, gradient_CV

    return cross_entropy_by(differentiate, enter(states_ND, group), own_VD, copy, targets_N, a_N, b_N)
