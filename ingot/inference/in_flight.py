"""A decoding step that has been launched: its tokens are copied to the host while the device goes on, then given to the requests.

Nearly all rows of a step go on, and of these the token, its log-probability and its version are noted, all rows at once. Only
rows that may end with their token (batch.py) are looked at one by one.

Shapes: B rows, N likeliest tokens, W bytes of packed bits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from operator import attrgetter

import numpy as np
import torch
from torch import Tensor

from ingot.inference.batch import DecodingBatch
from ingot.inference.draw import Drawn, unpack_kept
from ingot.inference.memory import Memory
from ingot.inference.request import Request
from ingot.workspace.errors import CheckFailed


class InFlight:
    """A step of `batch`, what was drawn in it, and how many tokens of each context have been `read` with it."""

    def __init__(self, batch: DecodingBatch, drawn: Drawn, version: int) -> None:
        self.batch, self.read, self.version = batch, batch.sizes.copy(), version
        self.has_more = drawn.kept_BW is not None or drawn.top_ids_BN is not None
        self._drawn_2B = _to_host(torch.stack((drawn.ids_B.double(), drawn.logprobs_B)))  # ids are exact in float64
        self._kept_BW, self._top_ids_BN, self._top_logprobs_BN = (
            None if tensor is None else _to_host(tensor)
            for tensor in (drawn.kept_BW, drawn.top_ids_BN, drawn.top_logprobs_BN)
        )
        self._event: torch.cuda.Event | None = None
        if drawn.ids_B.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def wait(self) -> tuple[list[int], list[float]]:
        """Ids and log-probabilities, once they have been copied."""
        if self._event is not None:
            self._event.synchronize()
        return self._drawn_2B[0].long().tolist(), self._drawn_2B[1].tolist()

    def leaving(self) -> set[int]:
        """The identities of requests that get their last token with this step, as far as that is known before."""
        rows = np.flatnonzero(self.read + 1 >= self.batch.ends).tolist()
        return {id(self.batch.requests[row]) for row in rows}

    def give(self, memory: Memory) -> tuple[int, list[Request]]:
        """Give every request its token, once the step is there; how many got one, and those that have ended with it."""
        tokens, logprobs = self.wait()
        check_finite(logprobs, self.version, memory)
        requests, page = self.batch.requests, memory.cache_shape.page
        alive = [request.finish is None for request in requests]
        for row in np.flatnonzero(self.read % page == 0).tolist():
            if alive[row]:
                memory.filled(requests[row], int(self.read[row]))
        if self.has_more:
            for row, request in enumerate(requests):
                if alive[row]:
                    self.add_more(row, request)
        count, ended = sum(alive), []
        for row in self.batch.may_end(self._drawn_2B[0].numpy(), self.read + 1):
            if alive[row]:
                requests[row].take(tokens[row], logprobs[row], self.version)
                alive[row] = False
                if requests[row].finish is not None:
                    ended.append(requests[row])
        going_on = list(compress(requests, alive))
        _append("tokens", going_on, compress(tokens, alive))
        _append("logprobs", going_on, compress(logprobs, alive))
        _append("versions", going_on, repeat(self.version))
        return count, ended

    def add_more(self, row: int, request: Request) -> None:
        """Give the request what else it asked for, once the step is there."""
        count = request.sampling.top_logprobs
        if count and self._top_ids_BN is not None and self._top_logprobs_BN is not None:
            ids, logprobs = self._top_ids_BN[row, :count].tolist(), self._top_logprobs_BN[row, :count].tolist()
            request.top_logprobs.append(list(zip(ids, logprobs, strict=True)))
        if request.sampling.keep_set and self._kept_BW is not None:
            request.kept.append(unpack_kept(self._kept_BW[row]))


def _append(name: str, requests: Sequence[Request], values: Iterable[float]) -> None:
    """Append a value to the list called `name` of each request, without a loop in Python: there are hundreds a step."""
    deque(map(list.append, map(attrgetter(name), requests), values), maxlen=0)


def check_finite(logprobs: Sequence[float], version: int, memory: Memory) -> None:
    """An error where a step's log-probabilities are not finite; what it has written to the caches is gone."""
    if not math.isfinite(sum(logprobs)):
        memory.clean()
        raise CheckFailed(
            f"the model's logits are not finite (weights of version {version})",
            place="engine",
            fix="the training has diverged: go back to an earlier checkpoint and lower the learning rate",
        )


def _to_host(tensor: Tensor) -> Tensor:
    """On the CPU; from a GPU without waiting for it."""
    if not tensor.is_cuda:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
