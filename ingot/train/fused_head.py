"""The language-model loss and its gradients in one go, without ever holding the logits of more than a chunk of tokens.

    loss = Σ_i a_i log p_i + Σ_i b_i (log Z_i)²          z_i = softcap(scale · W s_i),  Z_i = Σ_v e^{z_iv},  p_i = e^{z_it} / Z_i

The factors a and b are known before the pass (weights over denominators: terms.py), so the gradient of a chunk's logits,

    ∂loss/∂z_iv = a_i [v = t_i] + (2 b_i log Z_i − a_i) e^{z_iv} / Z_i ,

can be formed while they are there. They are then multiplied with the states and with W, and thrown away: three matrix
products instead of the four of recomputation, and memory that does not grow with tokens × vocabulary. This is the idea of
Liger's fused linear cross-entropy (arXiv 2410.10989), with log Z² in it.

What happens between the products is a `Differentiate`: `chunk` for any device, a kernel on CUDA (head_triton.py), or
one that exchanges sums with the ranks that hold the rest of the vocabulary (parallel/vocabulary.py).

Shapes: N tokens, D width, V vocabulary, C tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ingot.train.hardware import bytes_of_logits

CHUNK_LOGITS_CPU = 1 << 22  # values of a chunk: shorter ones cost more in the products than the cache saves

# logits W s [C, V], targets, a, b  →  log-probabilities, log-normalisers, and the logits' gradient, which may replace them
Differentiate = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        rounded_VD: Tensor,
        targets_N: Tensor,
        a_N: Tensor,
        b_N: Tensor | None,
        differentiate: Differentiate,
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens, vocabulary = len(targets_N), len(weight_VD)
        exact = torch.promote_types(states_ND.dtype, torch.float32)
        logprobs_N, normalisers_N = (torch.empty(tokens, dtype=exact, device=a_N.device) for _ in range(2))
        wants_states, wants_weight = context.needs_input_grad[0], context.needs_input_grad[1]
        gradient_states = states_ND.new_empty(states_ND.shape) if wants_states else None
        gradient_weight = weight_VD.new_empty(weight_VD.shape, dtype=exact) if wants_weight else None
        if gradient_weight is not None and not tokens:
            gradient_weight.zero_()
        size = _chunk_size(tokens, vocabulary, states_ND)
        buffer_CV = states_ND.new_empty(min(size, tokens), vocabulary)
        for start in range(0, tokens, size):
            part = slice(start, start + size)
            states, targets, a, b = states_ND[part], targets_N[part], a_N[part], None if b_N is None else b_N[part]
            logits = torch.mm(states, rounded_VD.T, out=buffer_CV[: len(states)])
            logprobs_N[part], normalisers_N[part], gradient = differentiate(logits, targets, a, b)
            if gradient_states is not None:
                torch.mm(gradient, rounded_VD, out=gradient_states[part])
            if gradient_weight is not None:
                _add_product(gradient_weight, gradient, states, first=start == 0)
        context.save_for_backward(gradient_states, gradient_weight)
        context.dtype = weight_VD.dtype
        loss = (a_N * logprobs_N).sum()
        loss = loss if b_N is None else loss + (b_N * normalisers_N.square()).sum()
        context.mark_non_differentiable(logprobs_N, normalisers_N)
        return loss, logprobs_N, normalisers_N

    @staticmethod
    def backward(context: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = context.saved_tensors
        for gradient in (states, weight):
            if gradient is not None:
                _multiply(gradient, upstream)
        return states, None if weight is None else weight.to(context.dtype), *[None] * 5


def linear_cross_entropy(
    states_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    a_N: Tensor,
    b_N: Tensor | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
    rounded_VD: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, log-probabilities, log-normalisers); only the loss carries a gradient.

    `rounded_VD` is a copy of the weight, used if it has the dtype of the states; the gradient goes to `weight_VD`.
    """
    if isinstance(weight_VD, DTensor):  # a head that tensor parallelism divides
        from ingot.train.parallel.vocabulary import divided_cross_entropy

        return divided_cross_entropy(states_ND, weight_VD, targets_N, a_N, b_N, scale, softcap)
    rounded = weight_VD if rounded_VD is None or rounded_VD.dtype != states_ND.dtype else rounded_VD
    rounded = rounded.detach().to(states_ND.dtype)
    differentiate = _differentiate_alone(states_ND, scale, softcap)
    return cross_entropy_by(differentiate, states_ND, weight_VD, rounded, targets_N, a_N, b_N)


def cross_entropy_by(
    differentiate: Differentiate,
    states_ND: Tensor,
    weight_VD: Tensor,
    rounded_VD: Tensor,
    targets_N: Tensor,
    a_N: Tensor,
    b_N: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same with a given middle, which knows scale and softcap; `rounded_VD` is the weight in the dtype of the states."""
    given = states_ND, weight_VD, rounded_VD, targets_N, a_N, b_N, differentiate
    return _LinearCrossEntropy.apply(*given)  # type: ignore[no-untyped-call]


def kernels_can(states_ND: Tensor) -> bool:
    """Whether the kernels of head_triton.py, which compute in float32, take the logits of these states."""
    return states_ND.is_cuda and states_ND.dtype != torch.float64


def chunk(
    logits_CV: Tensor, targets_C: Tensor, a_C: Tensor, b_C: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, log-normalisers, and the gradient of the products W s in their own dtype.

    Every operation passes over all logits: as few as possible, in place, and the exponentials once.
    """
    z_CV = capped(logits_CV, scale, softcap)
    largest_C = z_CV.amax(dim=-1)
    gradient = torch.sub(z_CV, largest_C[:, None]).exp_()
    sums_C = gradient.sum(dim=-1)
    normalisers_C = largest_C + sums_C.log()
    factor_C = -a_C if b_C is None else 2 * b_C * normalisers_C - a_C
    gradient.mul_((factor_C / sums_C)[:, None])
    gradient.scatter_add_(1, targets_C[:, None], a_C[:, None].to(gradient.dtype))
    logprobs_C = z_CV.gather(1, targets_C[:, None])[:, 0] - normalisers_C
    return logprobs_C, normalisers_C, through_cap(gradient, z_CV, scale, softcap).to(logits_CV.dtype)


def capped(logits_CV: Tensor, scale: float, softcap: float | None) -> Tensor:
    """z of the products W s, in float32 or better."""
    z_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
    z_CV = z_CV if scale == 1.0 else z_CV * scale
    return z_CV if softcap is None else softcap * torch.tanh(z_CV / softcap)


def through_cap(gradient_CV: Tensor, z_CV: Tensor, scale: float, softcap: float | None) -> Tensor:
    """The gradient of the products W s from that of z."""
    if softcap is not None:
        gradient_CV = gradient_CV * (1 - (z_CV / softcap).square())
    return gradient_CV if scale == 1.0 else gradient_CV * scale


def _differentiate_alone(states_ND: Tensor, scale: float, softcap: float | None) -> Differentiate:
    """What takes the logits of a head that is whole."""
    if kernels_can(states_ND):
        from ingot.train.head_triton import differentiate

        return partial(differentiate, scale=scale, softcap=softcap)
    return partial(chunk, scale=scale, softcap=softcap)


def _chunk_size(tokens: int, vocabulary: int, states: Tensor) -> int:
    """Tokens of a chunk: whole tiles of the matrix units; on CUDA about the same for all, because a short one fills no GPU."""
    size = max(1, _logits_at_once(states) // vocabulary)
    size = size - size % 128 if size > 128 else size
    if not states.is_cuda or tokens <= size or size <= 128:
        return size
    equal = -(-tokens // -(-tokens // size))
    return equal + -equal % 128


def _logits_at_once(states: Tensor) -> int:
    if not states.is_cuda:
        return CHUNK_LOGITS_CPU
    return bytes_of_logits(torch.cuda.get_device_properties(states.device).total_memory) // states.element_size()


def _add_product(total_VD: Tensor, gradient_CV: Tensor, states_CD: Tensor, *, first: bool) -> None:
    """total += gradientᵀ · states, or = if it is the first; added up in float32 whatever the factors are."""
    exact, beta = total_VD.dtype, 0 if first else 1
    if gradient_CV.dtype == exact or not total_VD.is_cuda:  # a CPU has no product with another dtype of result
        total_VD.addmm_(gradient_CV.T.to(exact), states_CD.to(exact), beta=beta)
    else:
        torch.addmm(total_VD, gradient_CV.T, states_CD, beta=beta, out_dtype=exact, out=total_VD)


def _multiply(gradient: Tensor, upstream: Tensor) -> None:
    """gradient ← gradient · upstream, which is 1 in training: then nothing is read, and no device is asked."""
    if kernels_can(gradient):
        from ingot.train.head_triton import multiply_unless_one

        multiply_unless_one(gradient, upstream)
    elif gradient.device.type != "cpu" or upstream != 1:
        gradient.mul_(upstream)
