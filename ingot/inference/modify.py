"""Changes to the logits before temperature and truncation: bias, masks, penalties, and a least number of tokens.

Each class holds one change for the rows of a batch that ask for it, as tensors on the device, and applies it in place:

    Bias         x_v + b_v
    Allowed      x_v = −∞ for every token that is not allowed, the same at every step
    Constrained  the same with masks that change at every step (structured output)
    Penalties    repetition r:  x_v / r if x_v > 0 else x_v · r,  for v in the prompt or the text
                 (Keskar et al. 2019, arXiv 1909.05858, with the sign as transformers has it), then
                 frequency f, presence p:  x_v − f · n_v − p · [n_v > 0],  n_v = how often v stands in the text (OpenAI)
    Minimum      x_v = −∞ for stop tokens while the text is too short

Nothing here asks the device for a value. The counts of the penalties are kept on the device, so that the host need not
know the last token. A sparse change is an addition at flat indices row · V + token, each of which occurs once.

Shapes: B rows, V vocabulary, E entries (a row and a token), and the rows that ask: A allowed, C constrained, P penalties.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.inference.sampling import Sampling
from ingot.workspace.errors import IngotError

History = tuple[Sequence[int], Sequence[int]]
"""The tokens of a request so far: those of its prompt, those of its text."""


class Modifier(Protocol):
    """One change of the logits."""

    def apply(self, logits_BV: Tensor, steps_B: Tensor) -> None:
        """Change the logits in place; `steps` counts the tokens that each row has drawn before."""


def to_device(values: Sequence[int] | NDArray[Any], device: torch.device) -> Tensor:
    """A tensor of whole numbers, or of an array; on CUDA by way of pinned memory, so that nothing waits for the copy."""
    tensor = torch.from_numpy(np.asarray(values, dtype=None if isinstance(values, np.ndarray) else np.int64))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


class Bias:
    """Numbers added to single logits."""

    def __init__(self, rows: Sequence[int], samplings: Sequence[Sampling], device: torch.device, size: int) -> None:
        tokens = ((row, [token for token, _ in samplings[row].logit_bias]) for row in rows)
        biases = [bias for row in rows for _, bias in samplings[row].logit_bias]
        self._index_E = to_device(_flat(tokens, size), device)
        self._bias_E = to_device(np.array(biases, dtype=np.float32), device)

    def apply(self, logits_BV: Tensor, steps_B: Tensor) -> None:
        logits_BV.view(-1).index_add_(0, self._index_E, self._bias_E.to(logits_BV.dtype))


class Allowed:
    """A list of the tokens that may be drawn."""

    def __init__(self, rows: Sequence[int], samplings: Sequence[Sampling], device: torch.device, size: int) -> None:
        tokens = ((index, samplings[row].allowed_tokens or ()) for index, row in enumerate(rows))
        index = to_device(_flat(tokens, size), device)
        self._rows_A = to_device(rows, device)
        self._banned_AV = torch.ones(len(rows), size, dtype=torch.bool, device=device)
        self._banned_AV.view(-1).index_fill_(0, index, False)

    def apply(self, logits_BV: Tensor, steps_B: Tensor) -> None:
        logits_AV = logits_BV.index_select(0, self._rows_A).masked_fill_(self._banned_AV, -math.inf)
        logits_BV.index_copy_(0, self._rows_A, logits_AV)


class Constrained:
    """Masks that the host makes for every step. Invariant: no mask is used for two draws."""

    def __init__(self, rows: Sequence[int], device: torch.device, size: int) -> None:
        self._rows, self._device, self._size = list(rows), device, size
        self._rows_C = to_device(self._rows, device)
        self._masks_CV: Tensor | None = None

    def set_masks(self, masks: Mapping[int, NDArray[np.uint8]]) -> None:
        """The masks of all constrained rows for the coming draw: 1 for each token that may be drawn."""
        if sorted(masks) != self._rows:
            problem = f"masks for the rows {sorted(masks)}, but the rows {self._rows} have constraints"
            raise IngotError(problem, place="sampling", fix="give one mask for each row with a constraint")
        # the caching allocator of pinned memory does not reuse this buffer before the copy is done
        staged = torch.zeros(len(masks), self._size, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
        for index, row in enumerate(self._rows):  # a tokenizer may have fewer tokens than the model has logits
            mask = masks[row][: self._size]  # a stop token may lie beyond
            staged.numpy()[index, : len(mask)] = mask
        self._masks_CV = staged.to(self._device, non_blocking=True)

    def apply(self, logits_BV: Tensor, steps_B: Tensor) -> None:
        if self._masks_CV is None:
            raise IngotError("a draw without new masks", place="sampling", fix="call set_masks before every draw")
        logits_CV = logits_BV.index_select(0, self._rows_C).masked_fill_(self._masks_CV == 0, -math.inf)
        logits_BV.index_copy_(0, self._rows_C, logits_CV)
        self._masks_CV = None


class Penalties:
    """Penalties on tokens that occurred, and the counts that they need."""

    def __init__(
        self,
        rows: Sequence[int],
        samplings: Sequence[Sampling],
        histories: Sequence[History] | None,
        device: torch.device,
        size: int,
    ) -> None:
        given = [((), ()) if histories is None else histories[row] for row in rows]
        asked = [samplings[row] for row in rows]
        factors = [(one.repetition_penalty, one.frequency_penalty, one.presence_penalty) for one in asked]
        columns = to_device(np.array(factors, dtype=np.float32), device).view(-1, 3, 1).unbind(1)
        self._repetition_P1, self._frequency_P1, self._presence_P1 = columns
        self._rows_P = to_device(rows, device)
        self._starts_P = torch.arange(len(rows), device=device) * size
        self._counts_PV = torch.zeros(len(rows), size, dtype=torch.int32, device=device)
        self._seen_PV = torch.zeros(len(rows), size, dtype=torch.bool, device=device)
        prompts = _flat(((index, prompt) for index, (prompt, _) in enumerate(given)), size)
        texts = _flat(((index, text) for index, (_, text) in enumerate(given)), size)
        self._seen_PV.view(-1).index_fill_(0, to_device(prompts, device), True)
        self._add(to_device(texts, device))

    def apply(self, logits_BV: Tensor, steps_B: Tensor) -> None:
        logits_PV = logits_BV.index_select(0, self._rows_P)
        repeated_PV = torch.where(logits_PV > 0, logits_PV / self._repetition_P1, logits_PV * self._repetition_P1)
        logits_PV = torch.where(self._seen_PV, repeated_PV, logits_PV)
        logits_PV -= self._frequency_P1 * self._counts_PV + self._presence_P1 * (self._counts_PV > 0)
        logits_BV.index_copy_(0, self._rows_P, logits_PV)

    def count(self, ids_B: Tensor) -> None:
        """Every row has got one more token."""
        self._add(self._starts_P + ids_B[self._rows_P])

    def spread(self, positions: int) -> Penalties:
        """The same counts for a batch in which row b has become the rows b · positions and following; see draw.py."""
        other = copy.copy(self)
        other._rows_P = self._rows_P * positions
        return other

    def _add(self, index: Tensor) -> None:
        self._counts_PV.view(-1).index_add_(0, index, torch.ones_like(index, dtype=torch.int32))
        self._seen_PV.view(-1).index_fill_(0, index, True)


class Minimum:
    """No stop token before the text has its least length."""

    def __init__(self, rows: Sequence[int], samplings: Sequence[Sampling], device: torch.device, size: int) -> None:
        # a stop token outside the vocabulary is never drawn anyway
        tokens = {row: [token for token in set(samplings[row].stop_tokens) if 0 <= token < size] for row in rows}
        entry_rows = [row for row in rows for _ in tokens[row]]
        self._index_E = to_device(_flat(tokens.items(), size), device)
        self._rows_E = to_device(entry_rows, device)
        self._least_E = to_device([min(samplings[row].min_new_tokens, 1 << 62) for row in entry_rows], device)

    def apply(self, logits_BV: Tensor, steps_B: Tensor) -> None:
        ban_E = torch.zeros_like(self._rows_E, dtype=logits_BV.dtype)
        ban_E.masked_fill_(steps_B[self._rows_E] < self._least_E, -math.inf)
        logits_BV.view(-1).index_add_(0, self._index_E, ban_E)


def _flat(tokens_of_row: Iterable[tuple[int, Sequence[int]]], size: int) -> NDArray[np.int64]:
    """Each row's tokens as flat indices; an error for a token that the vocabulary lacks."""
    parts = [np.zeros(0, dtype=np.int64)]
    for row, given in tokens_of_row:
        tokens = np.asarray(given, dtype=np.int64)
        if wrong := tokens[(tokens < 0) | (tokens >= size)].tolist():
            problem = f"token {wrong[0]} is not in the vocabulary of {size}"
            raise IngotError(problem, place="sampling", fix="give tokens of the model's own tokenizer")
        parts.append(row * size + tokens)
    return np.concatenate(parts)
