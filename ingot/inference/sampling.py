"""From logits to tokens: temperature, top-k, top-p, and a random number that depends on the request alone.

A token is drawn by inverting the cumulative distribution at a uniform number u(seed, index), where index counts the
tokens of the request. u comes from a counter-based generator (SplitMix64: Steele, Lea and Flood, OOPSLA 2014), so it
does not depend on which other requests share the batch, on the slot, or on how often the engine was interrupted:

    s = mix(seed + G),   u = (mix(s + (index + 1)·G) >> 12) / 2^52,   G = 0x9E3779B97F4A7C15, all modulo 2^64

Truncation keeps the top_k most likely tokens (0: all), renormalises, then keeps the shortest prefix of the sorted rest
that holds at least top_p of the mass.

The log-probability that is reported is log softmax(logits / temperature) *before* truncation: what a trainer computes
from the same weights, so that the policy ratio is 1. Greedy requests (temperature 0) report it at temperature 1.

Shapes: B rows, V vocabulary, R truncated rows, C candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ingot.workspace.errors import IngotError

GOLDEN = 0x9E3779B97F4A7C15
CANDIDATES = 256  # how many of the likeliest tokens truncation looks at before it sorts the whole vocabulary


@dataclass(frozen=True)
class Sampling:
    """How one request is sampled. Temperature 0 is greedy; top_p 1 and top_k 0 keep every token."""

    max_new_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    stop_tokens: tuple[int, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise IngotError(f"max_new_tokens is {self.max_new_tokens}", place="sampling", fix="give 1 or more")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise IngotError(f"temperature is {self.temperature}", place="sampling", fix="give 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise IngotError(f"top_p is {self.top_p}", place="sampling", fix="give a share above 0, at most 1")
        if self.top_k < 0:
            raise IngotError(f"top_k is {self.top_k}", place="sampling", fix="give 0 (off) or more")

    @property
    def truncates(self) -> bool:
        """Whether some tokens may be cut off before drawing; for a greedy request that changes nothing."""
        return self.temperature > 0 and (self.top_p < 1 or self.top_k > 0)


class Controls:
    """The samplings of a batch as tensors on the device, made once for as long as the batch stays the same."""

    def __init__(self, samplings: Sequence[Sampling], device: torch.device) -> None:
        seeds = torch.tensor([_signed(sampling.seed) for sampling in samplings], dtype=torch.int64)
        inverse = [1.0 / sampling.temperature if sampling.temperature > 0 else 1.0 for sampling in samplings]
        greedy = [sampling.temperature == 0 for sampling in samplings]
        truncated = [row for row, sampling in enumerate(samplings) if sampling.truncates]
        self.streams_B = _mix(seeds + _signed(GOLDEN)).to(device)
        self.inverse_temperature_B1 = torch.tensor(inverse, dtype=torch.float32).to(device)[:, None]
        self.greedy_B = torch.tensor(greedy).to(device)
        self.truncated_R = torch.tensor(truncated, dtype=torch.int64).to(device)
        self.top_k_R = torch.tensor([samplings[row].top_k for row in truncated], dtype=torch.int64).to(device)
        self.top_p_R = torch.tensor([samplings[row].top_p for row in truncated], dtype=torch.float64).to(device)
        # what is known on the host spares the device work, and asking it
        self.any_scaled = any(value != 1.0 for value in inverse)
        self.any_greedy, self.all_greedy = any(greedy), all(greedy)
        self.any_truncated = bool(truncated)
        self.largest_top_k = max((samplings[row].top_k for row in truncated), default=0)


def sample(logits_BV: Tensor, samplings: Sequence[Sampling], steps: Sequence[int]) -> tuple[Tensor, Tensor]:
    """One token and its log-probability for each row; `steps` counts the tokens that each request has drawn before."""
    steps_B = torch.tensor(steps, dtype=torch.int64, device=logits_BV.device)
    return draw(logits_BV, Controls(samplings, logits_BV.device), steps_B)


def draw(logits_BV: Tensor, controls: Controls, steps_B: Tensor) -> tuple[Tensor, Tensor]:
    """`sample` for a batch whose samplings are already on the device: ids [B] int64, log-probabilities [B] float64.

    The exponentials are taken in float32, their running sum in float64: a vocabulary of 10^5 tokens adds up exactly
    enough that the number drawn never falls off the end. Rows with a logit that is not a number report such a value.
    """
    scaled_BV = logits_BV * controls.inverse_temperature_B1 if controls.any_scaled else logits_BV
    if controls.any_greedy:
        top_B1, best_B1 = scaled_BV.max(dim=-1, keepdim=True)
    else:
        top_B1 = scaled_BV.amax(dim=-1, keepdim=True)  # several times as fast as max with its index
    weights_BV = (scaled_BV - top_B1).exp_()
    if controls.all_greedy:
        ids_B1, total_B1 = best_B1, weights_BV.sum(dim=-1, keepdim=True, dtype=torch.float64)
    else:
        uniform_B1 = uniform(controls.streams_B, steps_B)[:, None]
        cumulative_BV = weights_BV.cumsum(dim=-1, dtype=torch.float64)
        total_B1 = cumulative_BV[:, -1:]
        ids_B1 = _invert(cumulative_BV, uniform_B1)
        if controls.any_truncated:
            rows = controls.truncated_R
            ids_B1[rows] = _draw_truncated(scaled_BV[rows], total_B1[rows], uniform_B1[rows], controls)
        if controls.any_greedy:
            ids_B1 = torch.where(controls.greedy_B[:, None], best_B1, ids_B1)
    logprobs_B1 = (scaled_BV.gather(-1, ids_B1) - top_B1).double() - total_B1.log()
    return ids_B1[:, 0], logprobs_B1[:, 0]


def uniform(streams_B: Tensor, steps_B: Tensor) -> Tensor:
    """The uniform number of each row in [0, 1), float64 with 52 random bits."""
    bits = _mix(streams_B + (steps_B + 1) * _signed(GOLDEN))
    return _shift(bits, 12).double() * 2.0**-52


def _draw_truncated(scaled_RV: Tensor, total_R1: Tensor, uniform_R1: Tensor, controls: Controls) -> Tensor:
    """Ids [R, 1] drawn from the kept tokens of each row; `total` is a row's whole mass relative to its top token."""
    size = scaled_RV.shape[-1]
    top_k_R1, top_p_R1 = controls.top_k_R[:, None], controls.top_p_R[:, None]
    count = min(size, max(CANDIDATES, controls.largest_top_k))
    while True:
        values_RC, order_RC = scaled_RV.topk(count, dim=-1)
        weights_RC = (values_RC - values_RC[:, :1]).exp().double()
        # the nucleus may need more candidates than were taken; then the whole vocabulary is sorted
        enough_R1 = (top_k_R1 > 0) | (weights_RC.sum(dim=-1, keepdim=True) >= top_p_R1 * total_R1)
        if count == size or bool(enough_R1.all()):
            break
        count = size
    ranks_C = torch.arange(count, device=scaled_RV.device)
    weights_RC = weights_RC.masked_fill((top_k_R1 > 0) & (ranks_C >= top_k_R1), 0.0)
    mass_R1 = torch.where(top_k_R1 > 0, weights_RC.sum(dim=-1, keepdim=True), total_R1)
    before_RC = weights_RC.cumsum(dim=-1) - weights_RC
    weights_RC = weights_RC.masked_fill(before_RC >= top_p_R1 * mass_R1, 0.0)
    return order_RC.gather(-1, _invert(weights_RC.cumsum(dim=-1), uniform_R1))


def _invert(cumulative_BV: Tensor, uniform_B1: Tensor) -> Tensor:
    """The first index whose cumulative mass exceeds u·total: never a token of mass zero, since u·total < total.

    The clamp only matters for rows that are not numbers; the engine reports those.
    """
    target_B1 = uniform_B1 * cumulative_BV[:, -1:]
    return torch.searchsorted(cumulative_BV, target_B1, right=True).clamp_(max=cumulative_BV.shape[-1] - 1)


def _signed(value: int) -> int:
    """The int64 with the same 64 bits as `value` modulo 2^64; torch has no unsigned arithmetic."""
    value %= 1 << 64
    return value - (1 << 64) if value >> 63 else value


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: int64 shifts copy the sign, so the copies are masked off."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The output function of SplitMix64; int64 multiplication wraps modulo 2^64."""
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)
