"""The sampling options of a batch as tensors on the device, made once for as long as its requests stay the same.

An option that no request of the batch uses costs nothing: the host knows which options occur (the plain Python values here), and
the device is never asked. Batches of hundreds of requests change at nearly every step, so a request with nothing but a
seed and a temperature (`plain`) is not looked at twice. The changes of the logits are in modify.py; `Controls.modify`
has their order.

Shapes: B rows, V vocabulary; and the rows that ask for it: T truncation, K the kept set, R the likeliest tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ingot.inference.modify import Allowed, Bias, Constrained, History, Minimum, Modifier, Penalties, to_device
from ingot.inference.rows import NEW
from ingot.inference.sampling import Sampling
from ingot.workspace.errors import IngotError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Controls:
    """Row i is a request with `samplings[i]`; `histories[i]` has its tokens so far, for rows with penalties.

    If `before`, the controls of other rows, is given, only rows marked NEW in `sources` are computed; the others are copied from
    it.
    """

    def __init__(
        self,
        samplings: Sequence[Sampling],
        device: torch.device,
        vocabulary_size: int,
        histories: Sequence[History] | None = None,
        *,
        before: Controls | None = None,
        sources: NDArray[np.int64] | None = None,
    ) -> None:
        self.samplings, self.device, self.vocabulary_size = tuple(samplings), device, vocabulary_size
        count = len(samplings)
        self._integers: NDArray[np.int64] = np.zeros((3, count), np.int64)
        self._reals: NDArray[np.float64] = np.empty((4, count))
        self._special_B: NDArray[np.bool_] = np.zeros(count, bool)
        integers, reals, special = self._integers, self._reals, self._special_B
        new = np.ones(count, bool)
        if before is not None and sources is not None:
            new, rows = sources == NEW, sources[sources != NEW]
            integers[:, ~new], reals[:, ~new] = before._integers[:, rows], before._reals[:, rows]
            special[~new] = before._special_B[rows]
        looked_at = [samplings[row] for row in np.flatnonzero(new).tolist()]
        temperatures = np.array([one.temperature for one in looked_at])
        greedy = temperatures == 0
        integers[0, new], integers[2, new] = [one.stream for one in looked_at], greedy
        reals[0, new], reals[1, new], reals[2:, new] = 1.0, -math.inf, 1.0 / np.where(greedy, 1.0, temperatures)
        special[new] = [not one.plain for one in looked_at]
        for row in np.flatnonzero(new & special).tolist():
            one = samplings[row]
            if one.truncates:  # what switches a truncation off is 0, 1 and −∞
                integers[1, row] = one.top_k if one.top_k < vocabulary_size else 0
                reals[:2, row] = one.top_p, math.log(one.min_p) if one.min_p > 0 else -math.inf
            if one.raw_logprobs:
                reals[3, row] = 1.0
        self._special = np.flatnonzero(special).tolist()
        self.streams_B, self.top_k_B, self.greedy_B = to_device(integers, device).unbind()
        self.top_p_B, self.log_min_p_B, self.scale_B, self.policy_scale_B = to_device(reals, device).unbind()
        self.largest_top_k, self.any_top_p = int(integers[1].max(initial=0)), bool((reals[0] < 1).any())
        self.any_greedy, self.all_greedy = bool(integers[2].any()), bool(integers[2].all())
        self.any_scaled = bool((reals[2] != 1).any())
        self.any_raw = bool((reals[2] != reals[3]).any())  # log-probabilities at another temperature than the draw's
        self.truncated_T = self._rows_that(lambda one: one.truncates)
        self.kept_K = self._rows_that(lambda one: one.keep_set)
        self.ranked_R = self._rows_that(lambda one: one.top_logprobs > 0)
        most = max((samplings[row].top_logprobs for row in self._special), default=0)
        self.top_logprobs = min(most, vocabulary_size)
        self._make_modifiers(histories)
        self._repeated: dict[int, Controls] = {}

    @property
    def needs_host(self) -> bool:
        """Whether the host must know the last tokens, to call `set_masks`, before the next draw."""
        return self._constrained is not None

    @property
    def counts_tokens(self) -> bool:
        """Whether penalties count the tokens of rows, so that the host must know all of them before rows are made anew."""
        return self._penalties is not None

    def set_masks(self, masks: Mapping[int, NDArray[np.uint8]]) -> None:
        """The masks [V] of all rows with a constraint for the coming draw: 1 for each token that may be drawn."""
        if self._constrained is None:
            raise IngotError("masks for a batch without constraints", place="sampling", fix="ask needs_host before")
        self._constrained.set_masks(masks)

    def modify(self, logits_BV: Tensor, steps_B: Tensor) -> Tensor | None:
        """The logits to draw from, before temperature, in float32 or better; None if they are the model's own."""
        order = (self._bias, self._allowed, self._constrained, self._penalties, self._minimum)
        modifiers: list[Modifier] = [modifier for modifier in order if modifier is not None]
        if not modifiers:
            return None
        wide = torch.promote_types(logits_BV.dtype, torch.float32)
        modified_BV = logits_BV.to(wide, copy=True, memory_format=torch.contiguous_format)
        for modifier in modifiers:
            modifier.apply(modified_BV, steps_B)
        return modified_BV

    def count(self, ids_B: Tensor) -> None:
        """Every row has drawn a token: keep the counts of the penalties up to date."""
        if self._penalties is not None:
            self._penalties.count(ids_B)

    def repeated(self, positions: int) -> Controls:
        """Controls with each row repeated `positions` times (row b · positions + t), made once.

        A row with penalties has them at its first position only, and counts the token of that one.
        """
        if positions not in self._repeated:
            plain = [
                replace(one, repetition_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0)
                if one.penalises
                else one
                for one in self.samplings
            ]
            rows = [one for one in plain for _ in range(positions)]
            controls = Controls(rows, self.device, self.vocabulary_size)
            controls._penalties = self._penalties.spread(positions) if self._penalties else None
            self._repeated[positions] = controls
        return self._repeated[positions]

    def _make_modifiers(self, histories: Sequence[History] | None) -> None:
        samplings, device, size = self.samplings, self.device, self.vocabulary_size
        biased = self._where(lambda one: bool(one.logit_bias))
        allowed = self._where(lambda one: one.allowed_tokens is not None)
        constrained = self._where(lambda one: one.constraint is not None)
        penalised = self._where(lambda one: one.penalises)
        delayed = self._where(lambda one: one.min_new_tokens > 0 and bool(one.stop_tokens))
        self._bias = Bias(biased, samplings, device, size) if biased else None
        self._allowed = Allowed(allowed, samplings, device, size) if allowed else None
        self._constrained = Constrained(constrained, device, size) if constrained else None
        self._penalties = Penalties(penalised, samplings, histories, device, size) if penalised else None
        self._minimum = Minimum(delayed, samplings, device, size) if delayed else None

    def _where(self, asks: Callable[[Sampling], bool]) -> list[int]:
        return [row for row in self._special if asks(self.samplings[row])]

    def _rows_that(self, ask: Callable[[Sampling], bool]) -> Tensor | None:
        rows = self._where(ask)
        return to_device(rows, self.device) if rows else None
