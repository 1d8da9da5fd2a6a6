"""Samples the tokens of a decoding step: changes to the logits, the draw, and the log-probabilities that requests ask for.

A row is drawn in this order (vLLM's and, where they have the same options, transformers'):

    logit bias, allowed tokens, constraint, repetition penalty, frequency and presence penalties,
    min_new_tokens (all modify.py), temperature, top-k, top-p, min-p, draw (kernels/head/draw.py)

The log-probability that is reported is that of the policy as the trainer has it, log softmax(logits / temperature) with
nothing else changed, so that the policy ratio is 1; temperature 1 for greedy rows and with `raw_logprobs`. Rows with a
logit that is not a number, and rows whose masks leave no token, report nan.

Shapes: B rows, V vocabulary, K rows with kept sets, R rows that ask for the N likeliest tokens, W bytes of V bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.kernels.head.draw import draw_rows, scaled
from ingot.workspace.errors import IngotError


@dataclass
class Drawn:
    """One token of each row, and what else the rows asked for; None where no row asks.

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


def _report_kept(
    drawn: Drawn, logits_BV: Tensor, source_BV: Tensor, floor_B: Tensor | None, rows_K: Tensor, controls: Controls
) -> None:
    """Pack which tokens were left, and sum up their mass under the policy."""
    scaled_KV = scaled(source_BV[rows_K], controls.scale_B[rows_K])
    kept_KV = scaled_KV > -math.inf
    if floor_B is not None:
        kept_KV &= scaled_KV >= floor_B[rows_K][:, None]
    policy_KV = scaled(logits_BV[rows_K], controls.policy_scale_B[rows_K])
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
    policy_RV = scaled(logits_BV[rows_R], controls.policy_scale_B[rows_R])
    values_RN, ids_RN = policy_RV.topk(controls.top_logprobs, dim=-1)
    weights_RV = (policy_RV - values_RN[:, :1]).exp_()
    total_R1 = weights_RV.sum(dim=-1, keepdim=True, dtype=torch.float64)
    logprobs_RN = (values_RN - values_RN[:, :1]).double() - total_R1.log()
    shape = (len(logits_BV), controls.top_logprobs)
    drawn.top_ids_BN = ids_RN.new_zeros(shape).index_copy_(0, rows_R, ids_RN)
    drawn.top_logprobs_BN = logprobs_RN.new_zeros(shape).index_copy_(0, rows_R, logprobs_RN)
