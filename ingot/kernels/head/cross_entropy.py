"""Cross-entropy of a language-model head: log-probabilities of the targets and the gradient of the logits.

    z = softcap(scale · x)        Z = Σ_v e^{z_v}        log p = z_t − log Z
    ∂/∂x_v (a log p + b (log Z)²) = (a [v = t] + (2 b log Z − a) e^{z_v} / Z) · ∂z_v/∂x_v

The weights a and b of a token are known before the pass, so the gradient is formed while the logits are there
(train/losses/fused_head.py). A head divided over ranks needs the two steps one by one, because log Z is only known when the
ranks have exchanged theirs: `summarise` and `spread` (train/parallel/vocabulary.py).

Shapes: C tokens of a chunk, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def differentiate(
    logits_CV: Tensor, targets_C: Tensor, a_C: Tensor, b_C: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities, log-normalisers, and the gradient of the logits in their own dtype, which may replace them."""
    if kernel_allowed(logits_CV):
        from ingot.kernels.head import cross_entropy_kernel as kernel

        return kernel.differentiate(logits_CV, targets_C, a_C, b_C, scale, softcap)
    return differentiate_definition(logits_CV, targets_C, a_C, b_C, scale, softcap)


def differentiate_definition(
    logits_CV: Tensor, targets_C: Tensor, a_C: Tensor, b_C: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same in PyTorch. Every operation reads all logits: as few as possible, in place, and the exponentials once."""
    z_CV = _capped(logits_CV, scale, softcap)
    largest_C = z_CV.amax(dim=-1)
    gradient = torch.sub(z_CV, largest_C[:, None]).exp_()
    sums_C = gradient.sum(dim=-1)
    normalisers_C = largest_C + sums_C.log()
    factor_C = -a_C if b_C is None else 2 * b_C * normalisers_C - a_C
    gradient.mul_((factor_C / sums_C)[:, None])
    gradient.scatter_add_(1, targets_C[:, None], a_C[:, None].to(gradient.dtype))
    logprobs_C = z_CV.gather(1, targets_C[:, None])[:, 0] - normalisers_C
    return logprobs_C, normalisers_C, _through_cap(gradient, z_CV, scale, softcap).to(logits_CV.dtype)


def summarise(logits_CV: Tensor, targets_C: Tensor, scale: float, softcap: float | None) -> Tensor:
    """[2, C]: log Z of these columns, and the target's logit if it is among them, else zero."""
    if kernel_allowed(logits_CV):
        from ingot.kernels.head import cross_entropy_kernel as kernel

        return kernel.summarise(logits_CV, targets_C, scale, softcap)
    z_CV, last = _capped(logits_CV, scale, softcap), logits_CV.shape[1] - 1
    here_C = (targets_C >= 0) & (targets_C <= last)
    target_C = z_CV.gather(1, targets_C.clamp(0, last)[:, None])[:, 0]
    return torch.stack((z_CV.logsumexp(dim=-1), torch.where(here_C, target_C, 0)))


def spread(
    logits_CV: Tensor,
    targets_C: Tensor,
    normalisers_C: Tensor,
    a_C: Tensor,
    b_C: Tensor | None,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """The gradient of the logits in their own dtype, which may replace them; log Z is given."""
    if kernel_allowed(logits_CV):
        from ingot.kernels.head import cross_entropy_kernel as kernel

        return kernel.spread(logits_CV, targets_C, normalisers_C, a_C, b_C, scale, softcap)
    z_CV = _capped(logits_CV, scale, softcap)
    factor_C = -a_C if b_C is None else 2 * b_C * normalisers_C - a_C
    hit_CV = torch.arange(z_CV.shape[1], device=z_CV.device) == targets_C[:, None]
    gradient = factor_C[:, None] * torch.exp(z_CV - normalisers_C[:, None]) + torch.where(hit_CV, a_C[:, None], 0)
    return _through_cap(gradient, z_CV, scale, softcap).to(logits_CV.dtype)


def multiply_unless_one(x: Tensor, factor: Tensor) -> None:
    """x ← x · factor in place. In training the factor is 1: then nothing is read, and nothing waits for the device."""
    if kernel_allowed(x) and x.is_contiguous():
        from ingot.kernels.head import cross_entropy_kernel as kernel

        kernel.multiply_unless_one(x, factor)
    elif x.device.type != "cpu" or factor != 1:
        x.mul_(factor)


def kernel_allowed(x: Tensor) -> bool:
    """Whether the kernels, which compute in float32 on CUDA, can run; there may be gaps between the rows."""
    return x.is_cuda and x.dtype in DTYPES and x.stride(-1) == 1


def _capped(logits_CV: Tensor, scale: float, softcap: float | None) -> Tensor:
    """z of the logits, in float32 or better."""
    z_CV = logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32))
    z_CV = z_CV if scale == 1.0 else z_CV * scale
    return z_CV if softcap is None else softcap * torch.tanh(z_CV / softcap)


def _through_cap(gradient_CV: Tensor, z_CV: Tensor, scale: float, softcap: float | None) -> Tensor:
    """The gradient of the logits from that of z."""
    if softcap is not None:
        gradient_CV = gradient_CV * (1 - (z_CV / softcap).square())
    return gradient_CV if scale == 1.0 else gradient_CV * scale
