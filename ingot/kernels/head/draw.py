"""Samples a token from each row of logits: temperature, top-k, top-p, min-p, and a seeded draw.

Truncation keeps the tokens with x_v ≥ floor, where x = modified logits / temperature and floor is the largest of

    top-k   the k-th largest x
    top-p   the largest t with  Σ_{x_v ≥ t} p_v ≥ top_p · Σ p_v,  sums over what top-k kept
    min-p   max x + log(min_p)

so equal logits are kept or cut together: the kept set does not depend on the order of a sort. Temperature 0 takes the
first of the likeliest tokens and truncates nothing. The token is the first v, in the order of the vocabulary, with
Σ_{w ≤ v} p_w > u · Σ p_w over the kept tokens (uniform.py): it depends on nothing else in the batch.

The log-probability is log softmax(logits · policy_scale), before masks and truncation. Rows with a logit that is not a number,
and rows whose masks leave no token, report nan. Exponentials are in float32, sums in float64: a vocabulary of 10^5 tokens
adds up so exactly that the drawn number never lies beyond the last token.

Shapes: B rows, V vocabulary, T truncated rows, U of these, C candidates.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ingot.kernels.head.draw_controls import CANDIDATES, DrawControls
from ingot.kernels.head.uniform import uniform

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def draw_rows(
    logits_BV: Tensor, modified_BV: Tensor | None, controls: DrawControls, steps_B: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Ids, log-probabilities, and the floor of the kept tokens if any row truncates."""
    if kernel_allowed(logits_BV):
        from ingot.kernels.head.draw_kernel import draw_rows_triton

        return draw_rows_triton(logits_BV, modified_BV, controls, steps_B)
    return draw_rows_definition(logits_BV, modified_BV, controls, steps_B)


def kernel_allowed(logits_BV: Tensor) -> bool:
    """Whether the kernel can run: Triton has no vectors of one number."""
    return logits_BV.is_cuda and logits_BV.dtype in DTYPES and logits_BV.shape[1] > 1


def draw_rows_definition(
    logits_BV: Tensor, modified_BV: Tensor | None, controls: DrawControls, steps_B: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same in PyTorch."""
    scaled_BV = scaled(logits_BV if modified_BV is None else modified_BV, controls.scale_B, controls.any_scaled)
    if controls.any_greedy:
        top_B1, best_B1 = scaled_BV.max(dim=-1, keepdim=True)
    else:
        top_B1 = scaled_BV.amax(dim=-1, keepdim=True)  # several times as fast as max with its index
    weights_BV = (scaled_BV - top_B1).exp_()
    own = modified_BV is None and not controls.any_raw  # drawn from the very distribution that is reported
    floor_B: Tensor | None = None
    if controls.all_greedy:
        ids_B1, total_B1 = best_B1, weights_BV.sum(dim=-1, keepdim=True, dtype=torch.float64)
    else:
        if controls.truncated_T is not None:
            rows = controls.truncated_T
            scaled_TV, weights_TV = scaled_BV[rows], weights_BV[rows]
            total_T1 = weights_TV.sum(dim=-1, keepdim=True, dtype=torch.float64)
            floor_T1 = _floors(scaled_TV, weights_TV, total_T1, rows, controls)
            weights_BV.index_copy_(0, rows, weights_TV.mul_(scaled_TV >= floor_T1))
            floor_B = scaled_BV.new_full((len(scaled_BV),), -math.inf).index_copy_(0, rows, floor_T1[:, 0])
        cumulative_BV = weights_BV.cumsum(dim=-1, dtype=torch.float64)
        total_B1 = cumulative_BV[:, -1:]
        if controls.truncated_T is not None:
            total_B1 = total_B1.index_copy(0, rows, total_T1)
        ids_B1 = _invert(cumulative_BV, uniform(controls.streams_B, steps_B)[:, None])
        if controls.any_greedy:
            ids_B1 = torch.where(controls.greedy_B[:, None] > 0, best_B1, ids_B1)
    empty_B1 = top_B1 == -math.inf
    if not own:
        scaled_BV = scaled(logits_BV, controls.policy_scale_B, controls.any_scaled)
        top_B1 = scaled_BV.amax(dim=-1, keepdim=True)
        total_B1 = (scaled_BV - top_B1).exp_().sum(dim=-1, keepdim=True, dtype=torch.float64)
    logprobs_B1 = (scaled_BV.gather(-1, ids_B1) - top_B1).double() - total_B1.log()
    logprobs_B1.masked_fill_(empty_B1, math.nan)
    return ids_B1[:, 0], logprobs_B1[:, 0], floor_B


def scaled(logits_BV: Tensor, scale_B: Tensor, any_scaled: bool = True) -> Tensor:
    """Logits times 1 / temperature, in float32 or better."""
    wide = torch.promote_types(logits_BV.dtype, torch.float32)
    return logits_BV.to(wide) * scale_B.to(wide)[:, None] if any_scaled else logits_BV.to(wide)


def _floors(scaled_TV: Tensor, weights_TV: Tensor, total_T1: Tensor, rows_T: Tensor, controls: DrawControls) -> Tensor:
    """The smallest value [T, 1] that each truncated row keeps; `total` is the sum of a row's weights."""
    size = scaled_TV.shape[-1]
    top_k_T1, top_p_T1 = controls.top_k_B[rows_T][:, None], controls.top_p_B[rows_T][:, None]
    values_TC = scaled_TV.topk(min(size, max(CANDIDATES, controls.largest_top_k)), dim=-1).values
    floor_T1 = values_TC[:, :1] + controls.log_min_p_B[rows_T][:, None].to(values_TC.dtype)
    mass_T1 = total_T1
    if controls.largest_top_k:
        kth_T1 = values_TC.gather(-1, (top_k_T1 - 1).clamp_(min=0)).masked_fill_(top_k_T1 == 0, -math.inf)
        floor_T1 = torch.maximum(floor_T1, kth_T1)
        mass_T1 = (weights_TV * (scaled_TV >= kth_T1)).sum(dim=-1, keepdim=True, dtype=torch.float64)
    if not controls.any_top_p:
        return floor_T1
    nucleus_T1, found_T1 = _nucleus(values_TC, top_p_T1 * mass_T1)
    unfound = (~found_T1 & (top_k_T1 == 0) & (top_p_T1 < 1))[:, 0].nonzero()[:, 0]
    if len(unfound):  # the candidates were too few; numpy's sort is 5 times as fast as torch's
        sorted_UV = torch.from_numpy(np.sort(scaled_TV[unfound].cpu().numpy(), axis=-1)).flip(-1).to(scaled_TV.device)
        nucleus_T1[unfound], _ = _nucleus(sorted_UV, (top_p_T1 * mass_T1)[unfound])
    return torch.maximum(floor_T1, nucleus_T1.masked_fill_(top_p_T1 == 1, -math.inf))


def _nucleus(values_TC: Tensor, mass_T1: Tensor) -> tuple[Tensor, Tensor]:
    """The value in a falling sequence at which the sum of weights reaches `mass` (or the last), and whether it does."""
    cumulative_TC = (values_TC - values_TC[:, :1]).exp_().cumsum(dim=-1, dtype=torch.float64)
    place_T1 = torch.searchsorted(cumulative_TC, mass_T1).clamp_(max=values_TC.shape[-1] - 1)
    return values_TC.gather(-1, place_T1), cumulative_TC[:, -1:] >= mass_T1


def _invert(cumulative_BV: Tensor, uniform_B1: Tensor) -> Tensor:
    """The first index whose cumulative mass exceeds u·total: never a token of mass zero, since u·total < total.

    The clamp only matters for rows that are not numbers; these report nan.
    """
    target_B1 = uniform_B1 * cumulative_BV[:, -1:]
    return torch.searchsorted(cumulative_BV, target_B1, right=True).clamp_(max=cumulative_BV.shape[-1] - 1)
