"""The language-model loss and log-probabilities with their gradients, in chunks of tokens: the logits never exist all at once.

    loss = Σ_i a_i log p_i + Σ_i b_i (log Z_i)²          z_i = softcap(scale · W s_i),  Z_i = Σ_v e^{z_iv},  p_i = e^{z_it} / Z_i

The factors a and b are known before the pass (weights over denominators: terms.py), so the gradient of a chunk's logits,

    ∂loss/∂z_iv = a_i [v = t_i] + (2 b_i log Z_i − a_i) e^{z_iv} / Z_i ,

can be formed while they are there. They are then multiplied with the states and with W, and thrown away: three matrix
products instead of the four of recomputation, and memory that does not grow with tokens × vocabulary. This is the idea of
Liger's fused linear cross-entropy (arXiv 2410.10989), with log Z² in it.

Where the loss is any function of the log-probabilities (policy gradients, preferences) the factors a_i = ∂loss/∂log p_i are only
known in the backward pass. `linear_logprobs` keeps log Z of each token, computes the logits of a chunk once more there, and
forms the same gradient: four products, and no logits in float32.

What happens between the products is a `Differentiate`: that of kernels/cross_entropy.py, or one that exchanges sums with the
ranks that hold the rest of the vocabulary (parallel/vocabulary.py).

Shapes: N tokens, D width, V vocabulary, C tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from ingot.kernels.cross_entropy import differentiate, multiply_unless_one, spread, summarise
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
        copy_VD: Tensor,
        targets_N: Tensor,
        a_N: Tensor,
        b_N: Tensor | None,
        middle: Differentiate,
    ) -> tuple[Tensor, Tensor, Tensor]:
        tokens = len(targets_N)
        exact = torch.promote_types(states_ND.dtype, torch.float32)
        logprobs_N, normalisers_N = (torch.empty(tokens, dtype=exact, device=a_N.device) for _ in range(2))
        wants_states, wants_weight = context.needs_input_grad[0], context.needs_input_grad[1]
        gradient_states = states_ND.new_empty(states_ND.shape) if wants_states else None
        gradient_weight = weight_VD.new_empty(weight_VD.shape, dtype=exact) if wants_weight else None
        if gradient_weight is not None and not tokens:
            gradient_weight.zero_()
        for part, logits in _logits_by_chunk(states_ND, copy_VD):
            targets, a, b = targets_N[part], a_N[part], None if b_N is None else b_N[part]
            logprobs_N[part], normalisers_N[part], gradient = middle(logits, targets, a, b)
            if gradient_states is not None:
                torch.mm(gradient, copy_VD, out=gradient_states[part])
            if gradient_weight is not None:
                _add_product(gradient_weight, gradient, states_ND[part], first=part.start == 0)
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
                multiply_unless_one(gradient, upstream)
        return states, None if weight is None else weight.to(context.dtype), *[None] * 5


def linear_cross_entropy(
    states_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    a_N: Tensor,
    b_N: Tensor | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
    copy_VD: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, log-probabilities, log-normalisers); only the loss carries a gradient.

    `copy_VD` is a copy of the weight, used if it has the dtype of the states; the gradient goes to `weight_VD`.
    """
    if isinstance(weight_VD, DTensor):  # a head that tensor parallelism divides
        from ingot.train.parallel.vocabulary import divided_cross_entropy

        return divided_cross_entropy(states_ND, weight_VD, targets_N, a_N, b_N, scale, softcap)
    copy = weight_VD if copy_VD is None or copy_VD.dtype != states_ND.dtype else copy_VD
    copy = copy.detach().to(states_ND.dtype)
    middle = partial(differentiate, scale=scale, softcap=softcap)
    return cross_entropy_by(middle, states_ND, weight_VD, copy, targets_N, a_N, b_N)


def cross_entropy_by(
    middle: Differentiate,
    states_ND: Tensor,
    weight_VD: Tensor,
    copy_VD: Tensor,
    targets_N: Tensor,
    a_N: Tensor,
    b_N: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The same with a given function between the products; `copy_VD` is the weight in the dtype of the states."""
    given = states_ND, weight_VD, copy_VD, targets_N, a_N, b_N, middle
    return _LinearCrossEntropy.apply(*given)  # type: ignore[no-untyped-call]


class _LinearLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        states_ND: Tensor,
        weight_VD: Tensor,
        copy_VD: Tensor,
        targets_N: Tensor,
        scale: float,
        softcap: float | None,
    ) -> Tensor:
        exact = torch.promote_types(states_ND.dtype, torch.float32)
        found_2N = torch.empty(2, len(targets_N), dtype=exact, device=states_ND.device)  # log Z, and the target's z
        for part, logits in _logits_by_chunk(states_ND, copy_VD):
            found_2N[:, part] = summarise(logits, targets_N[part], scale, softcap)
        context.save_for_backward(states_ND, copy_VD, targets_N, found_2N[0])
        context.options, context.dtype = (scale, softcap), weight_VD.dtype
        return found_2N[1] - found_2N[0]

    @staticmethod
    def backward(context: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        states_ND, copy_VD, targets_N, normalisers_N = context.saved_tensors
        upstream_N = upstream_N.contiguous()  # that of a plain sum is one number, and the kernel reads N
        wants_states, wants_weight = context.needs_input_grad[:2]
        gradient_states = torch.empty_like(states_ND) if wants_states else None
        gradient_weight = copy_VD.new_zeros(copy_VD.shape, dtype=upstream_N.dtype) if wants_weight else None
        for part, logits in _logits_by_chunk(states_ND, copy_VD):
            given = targets_N[part], normalisers_N[part], upstream_N[part], None
            gradient = spread(logits, *given, *context.options)
            if gradient_states is not None:
                torch.mm(gradient, copy_VD, out=gradient_states[part])
            if gradient_weight is not None:
                _add_product(gradient_weight, gradient, states_ND[part], first=False)
        return gradient_states, None if gradient_weight is None else gradient_weight.to(context.dtype), *[None] * 4


def linear_logprobs(
    states_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float = 1.0, softcap: float | None = None
) -> Tensor:
    """log p of the targets [N] in float32 (float64 of a float64 model), for any loss."""
    copy = weight_VD.detach().to(states_ND.dtype)
    return _LinearLogprobs.apply(states_ND, weight_VD, copy, targets_N, scale, softcap)  # type: ignore[no-untyped-call]


def _logits_by_chunk(states_ND: Tensor, copy_VD: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The products of a chunk of tokens after the other, all in the same memory, with the place of the chunk."""
    tokens, vocabulary = len(states_ND), len(copy_VD)
    size = _chunk_size(tokens, vocabulary, states_ND)
    buffer_CV = states_ND.new_empty(min(size, tokens), vocabulary)
    for start in range(0, tokens, size):
        states = states_ND[start : start + size]
        yield slice(start, start + size), torch.mm(states, copy_VD.T, out=buffer_CV[: len(states)])


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
