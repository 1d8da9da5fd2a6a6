"""The sampling engine: many requests at once through one model, over a fixed number of cache slots.

At every step requests may join and leave, and each active one gets a token. What makes it fast:

* Prompts are read in padded buckets up to their last token but one; the last token is the request's first ordinary
  step, so there is one way to get logits. Equal prompts are read once, and a prompt that goes on from what a slot still
  holds (the next turn of a conversation) is read from there.
* Active requests are kept in the leading slots: one that leaves changes places with the last one. Compute shrinks with
  the number of active requests, and attention looks only as far as the longest of them.
* One transfer from the device a step brings tokens and log-probabilities.

Invariants: a request's text depends on its prompt, its sampling and the weights, not on its neighbours (up to the
rounding of matrix products of different batch sizes). Every token is stamped with the version of the weights that
sampled it, and no key or value outlives the weights that made it: `update` sends active requests back to the queue, to
be read again with their tokens so far. Weights that changed without `update` are an error.

An engine belongs to one thread. The model is shared, not copied: it is the module that training uses.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ingot.inference.checksum import state_checksum, weights_checksum
from ingot.inference.prefill import plan_passes
from ingot.inference.products import fast_products
from ingot.inference.sampling import Controls, Sampling, draw
from ingot.inference.slots import Slots
from ingot.model.transformer import Transformer
from ingot.workspace.errors import CheckFailed, IngotError

Finish = Literal["stop", "length"]
SHORTEST_MATCH = 16  # tokens in a slot that are worth copying instead of computing


@dataclass
class Completion:
    """What was sampled for one prompt. `tokens` includes the stop token, if one was drawn."""

    tokens: list[int]
    logprobs: list[float]
    versions: list[int]
    finish: Finish


@dataclass(eq=False)
class Request:
    """A prompt on its way through the engine."""

    prompt: list[int]
    sampling: Sampling
    limit: int  # the number of tokens after which it ends, stop token or not
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def context(self) -> list[int]:
        """Everything that the next token depends on."""
        return self.prompt + self.tokens

    @property
    def size(self) -> int:
        """The number of tokens in the context."""
        return len(self.prompt) + len(self.tokens)

    @property
    def last(self) -> int:
        """The last token of the context."""
        return (self.tokens or self.prompt)[-1]


class _Batch:
    """The active requests as tensors; valid until one of them leaves or another joins."""

    def __init__(self, active: Sequence[Request], device: torch.device) -> None:
        self.tokens_B = torch.tensor([request.last for request in active]).to(device)
        self.positions_B = torch.tensor([request.size - 1 for request in active]).to(device)
        self.steps_B = torch.tensor([len(request.tokens) for request in active]).to(device)
        self.slots_B = torch.arange(len(active), device=device)
        self.reach = max(request.size for request in active)
        self.controls = Controls([request.sampling for request in active], device)

    def advance(self, ids_B: Tensor) -> None:
        """Every request got one token."""
        self.tokens_B = ids_B
        self.positions_B = self.positions_B + 1
        self.steps_B = self.steps_B + 1
        self.reach += 1


class Engine:
    """Continuous batching of `slots` requests of at most `length` tokens each (default: the model's context)."""

    def __init__(self, model: Transformer, *, slots: int = 64, length: int | None = None) -> None:
        if slots < 1:
            raise IngotError(f"an engine with {slots} slots", place="engine", fix="give at least one slot")
        self.model = model
        self.length = model.config.context if length is None else length
        if self.length < 2:
            raise IngotError(f"an engine of length {self.length}", place="engine", fix="give a length of 2 or more")
        self.version = 0
        self._device = model.embedding.weight.device
        self._size = slots
        self._slots = Slots(model, slots, self.length)
        self._waiting: deque[Request] = deque()
        self._active: list[Request] = []  # request i is in slot i
        self._batch: _Batch | None = None
        self._checksum = weights_checksum(model)
        self._counters = _write_counters(model)

    # ---- what callers use

    def complete(self, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling]) -> list[Completion]:
        """Sample a completion for every prompt; the results are in the order of the prompts."""
        if len(prompts) != len(samplings):
            raise IngotError(f"{len(prompts)} prompts but {len(samplings)} samplings", place="engine")
        for number, prompt in enumerate(prompts):
            self._check_prompt(prompt, f"prompt {number}")
        self._check_weights()
        requests = [self.submit(*pair) for pair in zip(prompts, samplings, strict=True)]
        try:
            for request in requests:
                while request.finish is None:
                    self.step()
        finally:
            for request in requests:  # after Ctrl-C or an error nothing stays behind
                self.cancel(request)
        return [
            Completion(request.tokens, request.logprobs, request.versions, request.finish or "length")
            for request in requests
        ]

    def stream(self, prompt: Sequence[int], sampling: Sampling) -> Generator[int, None, None]:
        """The tokens of one completion as they are sampled; closing the iterator frees its slot."""
        self._check_weights()
        return self._stream(self.submit(prompt, sampling))

    def _stream(self, request: Request) -> Generator[int, None, None]:
        try:
            given = 0
            while request.finish is None or given < len(request.tokens):
                while given < len(request.tokens):
                    given += 1
                    yield request.tokens[given - 1]
                if request.finish is None:
                    self.step()
        finally:
            self.cancel(request)

    def update(self, state: Mapping[str, Tensor] | None, version: int) -> None:
        """Sample with new weights from now on. None: the shared module itself has been trained.

        The weights are compared with `state` by checksum after the copy. Active requests go on with the new weights;
        their keys and values are computed again.
        """
        if version < self.version:
            raise IngotError(f"version {version} after version {self.version}", place="engine.update")
        if state is not None:
            self._load(state)
        self._checksum, self._counters = weights_checksum(self.model), _write_counters(self.model)
        self.version = version
        self._start_over()

    # ---- one step at a time

    def submit(self, prompt: Sequence[int], sampling: Sampling) -> Request:
        """Queue a request; `step` moves it on."""
        self._check_prompt(prompt, "prompt")
        request = Request(list(prompt), sampling, min(sampling.max_new_tokens, self.length - len(prompt)))
        if request.limit == 0:
            request.finish = "length"
        else:
            self._waiting.append(request)
        return request

    def cancel(self, request: Request) -> None:
        """Drop a request, wherever it is; what it has sampled stays with it."""
        if request in self._waiting:
            self._waiting.remove(request)
        elif request in self._active:
            self._leave([self._active.index(request)])

    def step(self) -> None:
        """Let waiting requests join, and give every active one a token."""
        try:
            with torch.inference_mode(), fast_products(self.model.embedding.weight):
                self._join()
                if self._active:
                    self._sample()
        except BaseException:  # also Ctrl-C: half-filled slots must not be used
            self._start_over()
            raise

    def _sample(self) -> None:
        if self._batch is None:
            self._batch = _Batch(self._active, self._device)
        batch = self._batch
        states_B1D = self.model.hidden(
            batch.tokens_B[:, None],
            batch.positions_B[:, None],
            caches=self._slots.leading,
            slots=batch.slots_B,
            reach=batch.reach,
        )
        self._slots.grow([request.last for request in self._active], [request.size - 1 for request in self._active])
        ids_B, logprobs_B = draw(self.model.head(states_B1D[:, 0]), batch.controls, batch.steps_B)
        batch.advance(ids_B)
        tokens, logprobs = torch.stack((ids_B.double(), logprobs_B)).tolist()  # ids are exact in float64
        if not math.isfinite(sum(logprobs)):
            raise CheckFailed(
                f"the model's logits are not finite (weights of version {self.version})",
                place="engine",
                fix="the training has diverged: go back to an earlier checkpoint and lower the learning rate",
            )
        done = []
        for row, (request, token, logprob) in enumerate(zip(self._active, tokens, logprobs, strict=True)):
            token = int(token)
            request.tokens.append(token)
            request.logprobs.append(logprob)
            request.versions.append(self.version)
            if token in request.sampling.stop_tokens:
                request.finish = "stop"
                done.append(row)
            elif len(request.tokens) >= request.limit:
                request.finish = "length"
                done.append(row)
        if done:
            self._leave(done)

    # ---- joining and leaving

    def _join(self) -> None:
        """Move waiting requests into free slots and fill these with what the requests start with.

        While the engine is nearly full it waits until an eighth of the slots is free: a pass over one short prompt
        costs nearly as much as a step of everyone, and a row that stays empty for a while costs nothing.
        """
        first = len(self._active)
        if not self._waiting or (first and self._size - first < max(1, self._size // 8)):
            return
        rows_of: dict[tuple[int, ...], list[int]] = {}  # equal beginnings are read once, in the first of their rows
        while self._waiting and len(self._active) < self._size:
            request = self._waiting.popleft()
            rows_of.setdefault(tuple(request.context[:-1]), []).append(len(self._active))
            self._active.append(request)
        self._batch = None
        starts = {rows[0]: start for start, rows in rows_of.items() if start}
        matches = {row: self._slots.longest_match(start) for row, start in starts.items()}
        sources = {row: slot for row, (slot, length) in matches.items() if length >= SHORTEST_MATCH}
        known = {row: matches[row][1] for row in sources}
        self._slots.copy(list(sources.values()), list(sources), max(known.values(), default=0))
        self._read(starts, known)
        for start, rows in rows_of.items():
            self._slots.copy([rows[0]] * (len(rows) - 1), rows[1:], len(start))
            for row in rows:
                self._slots.hold(row, start)

    def _read(self, starts: Mapping[int, tuple[int, ...]], known: Mapping[int, int]) -> None:
        """Compute the keys and values of each row's tokens, save the first `known` ones, which are there."""
        unread = [(row, start, known.get(row, 0)) for row, start in starts.items() if known.get(row, 0) < len(start)]
        for padded, members in plan_passes([len(start) - skip for _, start, skip in unread]):
            group = [unread[member] for member in members]
            tokens = torch.zeros(len(group), padded, dtype=torch.int64)
            for index, (_, start, skip) in enumerate(group):
                tokens[index, : len(start) - skip] = torch.tensor(start[skip:])
            skips = torch.tensor([skip for _, _, skip in group])
            # padding may run over the end; the last position is free, because a start is shorter than the slot
            positions = (skips[:, None] + torch.arange(padded)).clamp_(max=self.length - 1)
            self.model.hidden(
                tokens.to(self._device),
                positions.to(self._device),
                caches=self._slots.caches,
                slots=torch.tensor([row for row, _, _ in group], device=self._device),
                lengths=torch.tensor([len(start) - skip for _, start, skip in group], device=self._device),
                reach=min(int(skips.max()) + padded, self.length),
            )

    def _leave(self, rows: Sequence[int]) -> None:
        """Take requests out; those at the end take the places that become free, so that no gap is left.

        What the leaving requests have in their slots stays for others to copy, until the slot is used again.
        """
        gone, count = set(rows), len(self._active) - len(rows)
        gaps = [row for row in rows if row < count]
        movers = [row for row in range(count, len(self._active)) if row not in gone]
        length = max((self._active[row].size for row in gaps + movers), default=0)
        self._slots.copy(movers + gaps, gaps + movers, length)
        for gap, mover in zip(gaps, movers, strict=True):
            self._active[gap] = self._active[mover]
        del self._active[count:]
        self._batch = None

    def _start_over(self) -> None:
        """Send active requests back to the queue; they are read again with the tokens they have."""
        self._waiting.extendleft(reversed(self._active))
        self._active, self._batch = [], None
        self._slots.forget()

    # ---- checks

    def _check_prompt(self, prompt: Sequence[int], place: str) -> None:
        if not prompt:
            raise IngotError("the prompt is empty", place=place, fix="give at least one token")
        if len(prompt) > self.length:
            raise IngotError(
                f"the prompt has {len(prompt)} tokens, the engine holds {self.length}",
                place=place,
                fix="shorten the prompt, or make the engine with a larger length",
            )
        size = self.model.config.vocabulary_size or 0
        if min(prompt) < 0 or max(prompt) >= size:
            wrong = next(token for token in prompt if not 0 <= token < size)
            raise IngotError(
                f"token {wrong} is not in the vocabulary of {size}",
                place=place,
                fix="encode with the model's tokenizer",
            )

    def _check_weights(self) -> None:
        """Torch counts the writes to each tensor, which is cheap to look at; only after one are the values compared."""
        counters = _write_counters(self.model)
        if counters == self._counters:
            return
        if weights_checksum(self.model) != self._checksum:
            raise CheckFailed(
                f"the weights are not those of version {self.version}: they changed without an update",
                place="engine",
                fix="call engine.update(None, version) after each change of the shared model",
            )
        self._counters = counters

    def _load(self, state: Mapping[str, Tensor]) -> None:
        own = self.model.state_dict()
        if wrong := sorted(own.keys() ^ state.keys()):
            raise IngotError(f"the new weights and the model differ in {wrong[0]!r}", place="engine.update")
        for name, tensor in own.items():
            if tensor.shape != state[name].shape:
                problem = f"{name} has shape {tuple(state[name].shape)}, the model {tuple(tensor.shape)}"
                raise IngotError(problem, place="engine.update")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])
        expected = state_checksum({name: state[name].to(tensor.device, tensor.dtype) for name, tensor in own.items()})
        if weights_checksum(self.model) != expected:
            raise CheckFailed("the weights did not arrive as they were sent", place="engine.update")


def _write_counters(model: Transformer) -> list[tuple[int, int]]:
    """For every weight, and every buffer (routers' biases), where it lies and how often it was written to in place."""
    tensors = (*model.parameters(), *model.buffers())
    return [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]
