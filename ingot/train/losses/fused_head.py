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

What happens between the products is a `Differentiate`: that of kernels/head/cross_entropy.py, or one that exchanges sums with the
ranks that hold the rest of the vocabulary (parallel/vocabulary.py).

Shapes: N tokens, D width, V vocabulary, C tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.kernels.head.cross_entropy import differentiate, multiply_unless_one, spread, summarise
from ingot.train.hardware import bytes_of_logits

CHUNK_LOGITS_CPU = 1 << 22  # values of a chunk: shorter ones cost more in the products than the cache saves

# logits W s [C, V], targets, a, b  →  log-probabilities, log-normalisers, and the logits' gradient, which may replace them
Differentiate = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor]]


class Products:
    """The products around the logits of a chunk, l = s Wᵀ, ∂s = g W, ∂W = gᵀ s, with W in the dtype of the states.

    Where a vocabulary is no multiple of 8, a GPU runs all three in kernels of older architectures, at two fifths of the speed.
    There W gets rows of zeros: their logits are 0, the kernels between the products do not write to them, and so they add
    nothing to either gradient.
    """

    def __init__(self, states_ND: Tensor, copy_VD: Tensor) -> None:
        self.states, self.vocabulary = states_ND, len(copy_VD)
        missing = -len(copy_VD) % _row_multiple(states_ND)
        self.weight = pad(copy_VD, (0, 0, 0, missing)) if missing else copy_VD
        self._gradient_states: Tensor | None = None
        self._gradient_weight: Tensor | None = None

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """The logits of a chunk of tokens after the other, all in the same memory, with the place of the chunk."""
        tokens = len(self.states)
        size = _chunk_size(tokens, self.vocabulary, self.states)
        buffer = self.states.new_empty(min(size, tokens), len(self.weight))
        for start in range(0, tokens, size):
            part = slice(start, start + size)
            states = self.states[part]
            self._rows = torch.mm(states, self.weight.T, out=buffer[: len(states)])
            self._logits = self._rows[:, : self.vocabulary]
            yield part, self._logits

    def keep_gradients(self, wants_states: bool, wants_weight: bool, exact: torch.dtype) -> None:
        """Let `add` compute these; that of the weight is added up in the dtype `exact`."""
        if wants_states:
            self._gradient_states = torch.empty_like(self.states)
        if wants_weight:
            make = torch.empty_like if len(self.states) else torch.zeros_like  # the first chunk is written, not added
            self._gradient_weight = make(self.weight, dtype=exact)

    def add(self, part: slice, gradient_CV: Tensor) -> None:
        """Take in the gradient of the logits that were given last; it may be in their place."""
        gradient = self._rows if gradient_CV is self._logits else gradient_CV
        columns = gradient.shape[1]
        if self._gradient_states is not None:
            torch.mm(gradient, self.weight[:columns], out=self._gradient_states[part])
        if self._gradient_weight is not None:
            _add_product(self._gradient_weight[:columns], gradient, self.states[part], first=part.start == 0)

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Of the states, and of the weight."""
        weight = self._gradient_weight
        return self._gradient_states, None if weight is None else weight[: self.vocabulary]


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
        exact = torch.promote_types(states_ND.dtype, torch.float32)
        logprobs_N, normalisers_N = (torch.empty(len(targets_N), dtype=exact, device=a_N.device) for _ in range(2))
        products = Products(states_ND, copy_VD)
        products.keep_gradients(context.needs_input_grad[0], context.needs_input_grad[1], exact)
        for part, logits in products.chunks():
            targets, a, b = targets_N[part], a_N[part], None if b_N is None else b_N[part]
            logprobs_N[part], normalisers_N[part], gradient = middle(logits, targets, a, b)
            products.add(part, gradient)
        context.save_for_backward(*products.gradients())
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
        products = Products(states_ND, copy_VD)
        for part, logits in products.chunks():
            found_2N[:, part] = summarise(logits, targets_N[part], scale, softcap)
        context.save_for_backward(states_ND, copy_VD, targets_N, found_2N[0])
        context.options, context.dtype = (scale, softcap), weight_VD.dtype
        return found_2N[1] - found_2N[0]

    @staticmethod
    def backward(context: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        states_ND, copy_VD, targets_N, normalisers_N = context.saved_tensors
        upstream_N = upstream_N.contiguous()  # that of a plain sum is one number, and the kernel reads N
        products = Products(states_ND, copy_VD)
        products.keep_gradients(context.needs_input_grad[0], context.needs_input_grad[1], upstream_N.dtype)
        for part, logits in products.chunks():
            given = targets_N[part], normalisers_N[part], upstream_N[part], None
            products.add(part, spread(logits, *given, *context.options))
        states, weight = products.gradients()
        return states, None if weight is None else weight.to(context.dtype), *[None] * 4


def linear_logprobs(
    states_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, scale: float = 1.0, softcap: float | None = None
) -> Tensor:
    """log p of the targets [N] in float32 (float64 of a float64 model), for any loss."""
    copy = weight_VD.detach().to(states_ND.dtype)
    return _LinearLogprobs.apply(states_ND, weight_VD, copy, targets_N, scale, softcap)  # type: ignore[no-untyped-call]


def _row_multiple(states: Tensor) -> int:
    """What the rows of a weight are rounded up to."""
    return 8 if states.is_cuda and states.element_size() == 2 else 1


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
