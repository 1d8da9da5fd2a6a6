"""The language-model loss and its gradients in one go, without ever holding the logits of more than a chunk of tokens.

    loss = Σ_i a_i log p_i + Σ_i b_i (log Z_i)²          z_i = softcap(scale · W s_i),  Z_i = Σ_v e^{z_iv},  p_i = e^{z_it} / Z_i

The factors a and b are known before the pass (weights over denominators: terms.py), so the gradient of a chunk's logits,

    ∂loss/∂z_iv = a_i [v = t_i] + (2 b_i log Z_i − a_i) e^{z_iv} / Z_i ,

can be formed while they are there. They are then multiplied with the states and with W, and thrown away: three matrix
products instead of the four of recomputation, and memory that does not grow with tokens × vocabulary. This is the idea of
Liger's fused linear cross-entropy (arXiv 2410.10989), with log Z² in it.

Shapes: N tokens, D width, V vocabulary, C tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ingot.model.team import run, team_can
from ingot.workspace.errors import IngotError

CHUNK_LOGITS = 1 << 29  # values of a chunk: 1 GiB in bfloat16, the smallest that still fills a large GPU
CHUNK_LOGITS_CPU = 1 << 22  # shorter ones cost more in the products than the cache saves


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        a_N: Tensor,
        b_N: Tensor | None,
        scale: float,
        softcap: float | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = states_ND.dtype
        weight = weight_VD.to(dtype)
        exact = torch.promote_types(dtype, torch.float32)
        logprobs_N, normalisers_N = (torch.empty(len(targets_N), dtype=exact, device=a_N.device) for _ in range(2))
        wants_states, wants_weight = context.needs_input_grad[0], context.needs_input_grad[1]
        gradient_states = torch.empty_like(states_ND) if wants_states else None
        gradient_weight = torch.zeros_like(weight_VD, dtype=exact) if wants_weight else None
        cuda = states_ND.device.type == "cuda"
        in_place = scale == 1.0 and softcap is None and _can_in_place(states_ND, weight, targets_N)
        size = max(1, (CHUNK_LOGITS if cuda else CHUNK_LOGITS_CPU) // len(weight_VD))
        if size > 128:
            size -= size % 128  # whole tiles of the matrix units
        differentiate = _compiled_chunk() if cuda else _chunk_in_place if in_place else _chunk
        for start in range(0, len(targets_N), size):
            part = slice(start, start + size)
            states = states_ND[part]
            logits = states @ weight.T
            factors = a_N[part], None if b_N is None else b_N[part]
            chunk = differentiate(logits, targets_N[part], *factors, scale, softcap)
            logprobs_N[part], normalisers_N[part], gradient = chunk
            if gradient_states is not None:
                torch.mm(gradient, weight, out=gradient_states[part])
            if gradient_weight is not None:
                add_product(gradient_weight, gradient, states)
        context.save_for_backward(gradient_states, gradient_weight)
        context.dtype = weight_VD.dtype
        loss = (a_N * logprobs_N).sum()
        loss = loss if b_N is None else loss + (b_N * normalisers_N.square()).sum()
        context.mark_non_differentiable(logprobs_N, normalisers_N)
        return loss, logprobs_N, normalisers_N

    @staticmethod
    def backward(context: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = context.saved_tensors
        states = None if states is None else states * upstream.to(states.dtype)
        weight = None if weight is None else weight.mul_(upstream).to(context.dtype)
        return states, weight, None, None, None, None, None


def linear_cross_entropy(
    states_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    a_N: Tensor,
    b_N: Tensor | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, log-probabilities, log-normalisers); only the loss carries a gradient."""
    if isinstance(weight_VD, DTensor):  # a head that tensor parallelism divides
        from ingot.train.parallel.vocabulary import divided_cross_entropy

        return divided_cross_entropy(states_ND, weight_VD, targets_N, a_N, b_N, scale, softcap)
    result: tuple[Tensor, Tensor, Tensor]
    result = _LinearCrossEntropy.apply(states_ND, weight_VD, targets_N, a_N, b_N, scale, softcap)  # type: ignore[no-untyped-call]
    return result


def _chunk(
    logits_CV: Tensor, targets_C: Tensor, a_C: Tensor, b_C: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, log-normalisers, and the gradient of the products W s in their own dtype."""
    z_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
    if scale != 1.0:
        z_CV = z_CV * scale
    if softcap is not None:
        z_CV = softcap * torch.tanh(z_CV / softcap)
    if z_CV.is_cuda:  # compiled: one kernel, which knows where it is
        normalisers_C = z_CV.logsumexp(dim=-1)
        factor_C = -a_C if b_C is None else 2 * b_C * normalisers_C - a_C
        hit_CV = torch.arange(z_CV.shape[1], device=z_CV.device) == targets_C[:, None]
        gradient = factor_C[:, None] * torch.exp(z_CV - normalisers_C[:, None]) + torch.where(hit_CV, a_C[:, None], 0)
    else:  # every operation passes over all logits: as few as possible, in place, and the exponentials once
        largest_C = z_CV.amax(dim=-1)
        gradient = torch.sub(z_CV, largest_C[:, None]).exp_()
        sums_C = gradient.sum(dim=-1)
        normalisers_C = largest_C + sums_C.log()
        factor_C = -a_C if b_C is None else 2 * b_C * normalisers_C - a_C
        gradient.mul_((factor_C / sums_C)[:, None])
        gradient.scatter_add_(1, targets_C[:, None], a_C[:, None].to(gradient.dtype))
    logprobs_C = z_CV.gather(1, targets_C[:, None])[:, 0] - normalisers_C
    if softcap is not None:
        gradient = gradient * (1 - (z_CV / softcap).square())
    if scale != 1.0:
        gradient = gradient * scale
    return logprobs_C, normalisers_C, gradient.to(logits_CV.dtype)


def _can_in_place(states_ND: Tensor, weight_VD: Tensor, targets_N: Tensor) -> bool:
    """Whether the compiled loop takes these. It indexes memory itself, so nothing but tokens of the vocabulary may come to it."""
    if not team_can(states_ND, weight_VD) or torch.is_autocast_enabled("cpu") or targets_N.dtype != torch.int64:
        return False
    if len(targets_N):
        lowest, highest = targets_N.aminmax()
        if lowest < 0 or highest >= len(weight_VD):
            wrong = int(lowest if lowest < 0 else highest)
            raise IngotError(
                f"{wrong} is not a token of a vocabulary of {len(weight_VD)}",
                place="the targets of the loss",
                fix="use the tokenizer that the model was made for; mask tokens that shall not count by their weight",
            )
    return True


def _chunk_in_place(
    logits_CV: Tensor, targets_C: Tensor, a_C: Tensor, b_C: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for float32 on a CPU, with neither scale nor softcap: one pass over the logits, which become the gradient."""
    from ingot.model.head_loops import differentiate

    targets_C, a_C = targets_C.contiguous(), a_C.float().contiguous()
    b_C = None if b_C is None else b_C.float().contiguous()
    logprobs_C, normalisers_C = torch.empty_like(a_C), torch.empty_like(a_C)
    given = (logits_CV, targets_C, a_C, 0 if b_C is None else b_C)
    run(differentiate, *given, logprobs_C, normalisers_C, *logits_CV.shape)
    return logprobs_C, normalisers_C, logits_CV


@cache
def _compiled_chunk() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """The same in one kernel; made when first needed, because loading the compiler takes seconds."""
    return torch.compile(_chunk, dynamic=False)


def add_product(total_VD: Tensor, gradient_CV: Tensor, states_CD: Tensor) -> None:
    """total += gradientᵀ · states, added up in float32 whatever the factors are."""
    if gradient_CV.dtype == total_VD.dtype or not total_VD.is_cuda:  # a CPU has no product with another dtype of result
        total_VD.addmm_(gradient_CV.T.to(total_VD.dtype), states_CD.to(total_VD.dtype))
    else:
        torch.addmm(total_VD, gradient_CV.T, states_CD, out_dtype=total_VD.dtype, out=total_VD)
