"""A decoding step that has been launched: its tokens are copied to the host while the device goes on.

Shapes: B rows, N likeliest tokens, W bytes of packed bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ingot.inference.draw import Drawn, unpack_kept
from ingot.inference.memory import Memory
from ingot.inference.request import Request
from ingot.workspace.errors import CheckFailed


class InFlight:
    """The requests of the step, row by row, how many tokens of each have been `read` with it, and what was drawn for them."""

    def __init__(self, requests: Sequence[Request], drawn: Drawn, read: Sequence[int], version: int) -> None:
        self.requests, self.read, self.version = requests, read, version
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

    def give(self, memory: Memory) -> list[Request]:
        """Give every request that has not ended its token, once the step is there; those that got one."""
        tokens, logprobs = self.wait()
        check_finite(logprobs, self.version, memory)
        given, page = [], memory.cache_shape.page
        for row, request in enumerate(self.requests):
            if request.finish is not None:
                continue
            if self.read[row] % page == 0:
                memory.filled(request, self.read[row])
            if self.has_more:
                self.add_more(row, request)
            request.take(tokens[row], logprobs[row], self.version)
            given.append(request)
        return given

    def wait(self) -> tuple[list[int], list[float]]:
        """Ids and log-probabilities, once they have been copied."""
        if self._event is not None:
            self._event.synchronize()
        ids, logprobs = self._drawn_2B.tolist()
        return [int(token) for token in ids], logprobs

    def add_more(self, row: int, request: Request) -> None:
        """Give the request what else it asked for, once the step is there."""
        count = request.sampling.top_logprobs
        if count and self._top_ids_BN is not None and self._top_logprobs_BN is not None:
            ids, logprobs = self._top_ids_BN[row, :count].tolist(), self._top_logprobs_BN[row, :count].tolist()
            request.top_logprobs.append(list(zip(ids, logprobs, strict=True)))
        if request.sampling.keep_set and self._kept_BW is not None:
            request.kept.append(unpack_kept(self._kept_BW[row]))


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
