"""From logits to tokens: temperature, truncation, and the inverse of the cumulative distribution at u(seed, index).

A row is drawn in this order (vLLM's and, where they have the same options, transformers'):

    logit bias, allowed tokens, constraint, repetition penalty, frequency and presence penalties,
    min_new_tokens (all modify.py), temperature, top-k, top-p, min-p, draw

Truncation keeps the tokens with x_v ≥ floor, where x = modified logits / temperature and floor is the largest of

    top-k   the k-th largest x
    top-p   the largest t with  Σ_{x_v ≥ t} p_v ≥ top_p · Σ p_v,  sums over what top-k kept
    min-p   max x + log(min_p)

so equal logits are kept or cut together: the kept set does not depend on the order of a sort. Temperature 0 takes the
first of the likeliest tokens and truncates nothing. The token is the first v, in the order of the vocabulary, with
Σ_{w ≤ v} p_w > u · Σ p_w over the kept tokens (uniform.py): its text depends on nothing else in the batch.

The log-probability that is reported is that of the policy as the trainer has it, log softmax(logits / temperature) with
nothing else changed, so that the policy ratio is 1; temperature 1 for greedy rows and with `raw_logprobs`. Rows with a
logit that is not a number, and rows whose masks leave no token, report nan.

On CUDA a kernel draws (draw_triton.py) and nothing waits for the device; `draw_rows` here is its reference and the way
of the CPU. Exponentials are in float32, sums in float64: a vocabulary of
10^5 tokens adds up so exactly that the number drawn never falls off the end.

Shapes: B rows, V vocabulary, T truncated rows, U of these, C candidates, K rows with kept sets, R rows that ask for the
N likeliest tokens, W bytes of V bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.inference.uniform import uniform
from ingot.workspace.errors import IngotError

CANDIDATES = 256  # how many of the likeliest tokens truncation looks at before it sorts the whole vocabulary


@dataclass
class Drawn:
    """One token of each row, and what the rows asked for beside it; None where no row asks.

    `kept_BW` has bit v % 8 of byte v // 8 set for each token v that masks and truncation left, and `kept_logmass_B` is
    log Σ π_v over these under the policy π of the log-probabilities; rows that did not ask have zeros.
    `top_ids_BN` and `top_logprobs_BN` are the likeliest tokens of the policy, the likeliest first.
    """

    ids_B: Tensor
    logprobs_B: Tensor
    kept_BW: Tensor | None = None
    kept_logmass_B: Tensor | None = None
    top_ids_BN: Tensor | None = None
    top_logprobs_BN: Tensor | None = None


def draw(logits_BV: Tensor, controls: Controls, steps_B: Tensor) -> Drawn:
    """A token for each row: ids int64, log-probabilities float64; `steps` counts the tokens that a row drew before.

    Penalties count the token that was drawn.
    """
    if logits_BV.shape != (len(controls.samplings), controls.vocabulary_size):
        expected = (len(controls.samplings), controls.vocabulary_size)
        raise IngotError(f"logits {tuple(logits_BV.shape)} for controls of {expected}", place="sampling")
    modified_BV = controls.modify(logits_BV, steps_B)
    if logits_BV.is_cuda and logits_BV.shape[1] > 1:  # Triton has no vectors of one number
        from ingot.inference import draw_triton

        ids_B, logprobs_B, floor_B = draw_triton.draw_rows(logits_BV, modified_BV, controls, steps_B)
    else:
        ids_B, logprobs_B, floor_B = draw_rows(logits_BV, modified_BV, controls, steps_B)
    controls.count(ids_B)
    drawn = Drawn(ids_B, logprobs_B)
    if controls.kept_K is not None:
        source_BV = logits_BV if modified_BV is None else modified_BV
        _report_kept(drawn, logits_BV, source_BV, floor_B, controls.kept_K, controls)
    if controls.ranked_R is not None:
        _report_top(drawn, logits_BV, controls.ranked_R, controls)
    return drawn


def draw_positions(logits_BTV: Tensor, controls: Controls, steps_B: Tensor) -> Drawn:
    """`draw` at T positions of each row at once, for speculative decoding: row b · T + t of the result has index
    steps[b] + t. A row with penalties is right at its first position only, and its counts take in that token; masks of
    constraints are set with `controls.repeated(T).set_masks`.
    """
    rows, positions, size = logits_BTV.shape
    steps_BT = steps_B[:, None] + torch.arange(positions, device=steps_B.device)
    return draw(logits_BTV.reshape(rows * positions, size), controls.repeated(positions), steps_BT.view(-1))


def unpack_kept(kept_W: Tensor) -> list[int]:
    """The tokens of one row of `kept_BW` (on the CPU)."""
    bits_W8 = kept_W[:, None] >> torch.arange(8, dtype=torch.uint8) & 1
    return bits_W8.view(-1).nonzero()[:, 0].tolist()


def draw_rows(
    logits_BV: Tensor, modified_BV: Tensor | None, controls: Controls, steps_B: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Ids, log-probabilities, and the floor of the kept tokens if any row truncates."""
    scaled_BV = _scaled(logits_BV if modified_BV is None else modified_BV, controls.scale_B, controls.any_scaled)
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
        scaled_BV = _scaled(logits_BV, controls.policy_scale_B, controls.any_scaled)
        top_B1 = scaled_BV.amax(dim=-1, keepdim=True)
        total_B1 = (scaled_BV - top_B1).exp_().sum(dim=-1, keepdim=True, dtype=torch.float64)
    logprobs_B1 = (scaled_BV.gather(-1, ids_B1) - top_B1).double() - total_B1.log()
    logprobs_B1.masked_fill_(empty_B1, math.nan)
    return ids_B1[:, 0], logprobs_B1[:, 0], floor_B


def _scaled(logits_BV: Tensor, scale_B: Tensor, any_scaled: bool = True) -> Tensor:
    """Logits times 1 / temperature, in float32 or better."""
    wide = torch.promote_types(logits_BV.dtype, torch.float32)
    return logits_BV.to(wide) * scale_B.to(wide)[:, None] if any_scaled else logits_BV.to(wide)


def _floors(scaled_TV: Tensor, weights_TV: Tensor, total_T1: Tensor, rows_T: Tensor, controls: Controls) -> Tensor:
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
        sorted_UV = torch.from_numpy(np.sort(scaled_TV[unfound].numpy(), axis=-1)).flip(-1)
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


def _report_kept(
    drawn: Drawn, logits_BV: Tensor, source_BV: Tensor, floor_B: Tensor | None, rows_K: Tensor, controls: Controls
) -> None:
    """Pack which tokens were left, and sum up their mass under the policy."""
    scaled_KV = _scaled(source_BV[rows_K], controls.scale_B[rows_K])
    kept_KV = scaled_KV > -math.inf
    if floor_B is not None:
        kept_KV &= scaled_KV >= floor_B[rows_K][:, None]
    policy_KV = _scaled(logits_BV[rows_K], controls.policy_scale_B[rows_K])
    weights_KV = (policy_KV - policy_KV.amax(dim=-1, keepdim=True)).exp_()
    total_K = weights_KV.sum(dim=-1, dtype=torch.float64)
    left_K = weights_KV.masked_fill_(~kept_KV, 0.0).sum(dim=-1, dtype=torch.float64)
    padded_KW8 = torch.nn.functional.pad(kept_KV.to(torch.uint8), (0, -kept_KV.shape[-1] % 8)).unflatten(-1, (-1, 8))
    packed_KW = (padded_KW8 << torch.arange(8, dtype=torch.uint8, device=rows_K.device)).sum(-1, dtype=torch.uint8)
    batch = len(logits_BV)
    drawn.kept_BW = packed_KW.new_zeros(batch, packed_KW.shape[-1]).index_copy_(0, rows_K, packed_KW)
    drawn.kept_logmass_B = left_K.new_zeros(batch).index_copy_(0, rows_K, (left_K / total_K).log())


def _report_top(drawn: Drawn, logits_BV: Tensor, rows_R: Tensor, controls: Controls) -> None:
    """The likeliest tokens of the policy and their log-probabilities."""
    policy_RV = _scaled(logits_BV[rows_R], controls.policy_scale_B[rows_R])
    values_RN, ids_RN = policy_RV.topk(controls.top_logprobs, dim=-1)
    weights_RV = (policy_RV - values_RN[:, :1]).exp_()
    total_R1 = weights_RV.sum(dim=-1, keepdim=True, dtype=torch.float64)
    logprobs_RN = (values_RN - values_RN[:, :1]).double() - total_R1.log()
    shape = (len(logits_BV), controls.top_logprobs)
    drawn.top_ids_BN = ids_RN.new_zeros(shape).index_copy_(0, rows_R, ids_RN)
    drawn.top_logprobs_BN = logprobs_RN.new_zeros(shape).index_copy_(0, rows_R, logprobs_RN)
