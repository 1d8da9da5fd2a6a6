"""Embedding and head divided by vocabulary: rank r of N has the tokens r·V/N to (r + 1)·V/N − 1 (Megatron-LM, arXiv 1909.08053).

    embedding    a rank looks up its own tokens, zeros for the others; the sum over the ranks is the embedding
    log Z        log Σ_ranks e^(log Z of the rank)
    target       the logit of the rank that has the target, zero on the others; the sum over the ranks
    ∂z           as in fused_head.py, from the log Z of all ranks; every rank's own columns
    ∂states      the sum over the ranks of ∂z · W, one sum for the whole batch

Logits never travel: for a chunk of tokens the ranks exchange two numbers per token. Only `divided_logits`, for losses that are
no known sum over tokens and for evaluation, puts whole logits together.

Shapes: N tokens, C tokens of a chunk, D width, V vocabulary of this rank, R ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor
from torch.nn.functional import embedding

from ingot.model.linear import Embedding
from ingot.model.order import local
from ingot.model.transformer import Transformer
from ingot.train.fused_head import CHUNK_LOGITS, CHUNK_LOGITS_CPU, add_product
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
    """What `linear_cross_entropy` (fused_head.py) gives, from a head that is cut by its rows: the same on all ranks."""
    group = weight_VD.device_mesh.get_group()
    return _Divided.apply(states_ND, local(weight_VD), targets_N, a_N, b_N, scale, softcap, group)  # type: ignore[no-untyped-call]


class _Divided(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        a_N: Tensor,
        b_N: Tensor | None,
        scale: float,
        softcap: float | None,
        group: distributed.ProcessGroup,
    ) -> tuple[Tensor, Tensor, Tensor]:
        weight, exact = weight_VD.to(states_ND.dtype), torch.promote_types(states_ND.dtype, torch.float32)
        targets_N = targets_N - group.rank() * len(weight_VD)  # rows of this rank; negative or too large on the others
        logprobs_N, normalisers_N = (torch.empty(len(targets_N), dtype=exact, device=a_N.device) for _ in range(2))
        d_states = torch.empty_like(states_ND) if ctx.needs_input_grad[0] else None
        d_weight = torch.zeros_like(weight_VD, dtype=exact) if ctx.needs_input_grad[1] else None
        summary, gradient = (_compiled(_summary), _compiled(_gradient)) if states_ND.is_cuda else (_summary, _gradient)
        size = max(1, (CHUNK_LOGITS if states_ND.is_cuda else CHUNK_LOGITS_CPU) // len(weight_VD))
        for start in range(0, len(targets_N), size):
            part = slice(start, start + size)
            logits_CV = states_ND[part] @ weight.T
            summaries_R2C = all_gather(summary(logits_CV, targets_N[part], scale, softcap), group)
            normalisers_N[part] = summaries_R2C[:, 0].logsumexp(dim=0)
            logprobs_N[part] = summaries_R2C[:, 1].sum(dim=0) - normalisers_N[part]
            factors = a_N[part], None if b_N is None else b_N[part]
            d_logits = gradient(logits_CV, targets_N[part], normalisers_N[part], *factors, scale, softcap)
            if d_states is not None:
                torch.mm(d_logits, weight, out=d_states[part])
            if d_weight is not None:
                add_product(d_weight, d_logits, states_ND[part])
        if d_states is not None:
            distributed.all_reduce(d_states, group=group)
        ctx.save_for_backward(d_states, d_weight)
        ctx.dtype = weight_VD.dtype
        loss = (a_N * logprobs_N).sum()
        loss = loss if b_N is None else loss + (b_N * normalisers_N.square()).sum()
        ctx.mark_non_differentiable(logprobs_N, normalisers_N)
        return loss, logprobs_N, normalisers_N

    @staticmethod
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        d_states, d_weight = ctx.saved_tensors
        d_states = None if d_states is None else d_states * upstream.to(d_states.dtype)
        d_weight = None if d_weight is None else d_weight.mul_(upstream).to(ctx.dtype)
        return d_states, d_weight, None, None, None, None, None, None


def _capped(logits_CV: Tensor, scale: float, softcap: float | None) -> Tensor:
    z_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
    z_CV = z_CV if scale == 1.0 else z_CV * scale
    return z_CV if softcap is None else softcap * torch.tanh(z_CV / softcap)


def _summary(logits_CV: Tensor, targets_C: Tensor, scale: float, softcap: float | None) -> Tensor:
    """[2, C]: log Z of these columns, and the target's logit if it is among them, else zero."""
    z_CV, last = _capped(logits_CV, scale, softcap), logits_CV.shape[1] - 1
    here_C = (targets_C >= 0) & (targets_C <= last)
    target_C = z_CV.gather(1, targets_C.clamp(0, last)[:, None])[:, 0]
    return torch.stack((z_CV.logsumexp(dim=-1), torch.where(here_C, target_C, 0)))


def _gradient(
    logits_CV: Tensor,
    targets_C: Tensor,
    normalisers_C: Tensor,
    a_C: Tensor,
    b_C: Tensor | None,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """That of the products W s, in their own dtype."""
    z_CV = _capped(logits_CV, scale, softcap)
    factor_C = -a_C if b_C is None else 2 * b_C * normalisers_C - a_C
    hit_CV = torch.arange(z_CV.shape[1], device=z_CV.device) == targets_C[:, None]
    gradient = factor_C[:, None] * torch.exp(z_CV - normalisers_C[:, None]) + torch.where(hit_CV, a_C[:, None], 0)
    if softcap is not None:
        gradient = gradient * (1 - (z_CV / softcap).square())
    return (gradient * scale).to(logits_CV.dtype)


@cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Compiled when it is first used: loading the compiler takes seconds, in every process."""
    return torch.compile(function, dynamic=False)
