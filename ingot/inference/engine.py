"""The sampling engine: many requests at once through one model, over a cache in pages.

At every step requests may join and leave, a chunk of the waiting prompts is read, and each active request gets a token:

    admit    waiting requests get a slot, and pages for their context; requests with the same beginning share pages
    read     prompts are read in chunks, at most `chunk` tokens a step, up to their last token but one
    decode   every active request reads its last token and draws the next one, so there is one way to get logits

First come, first served; a follow-up turn keeps its conversation's position. When an active request needs a page and none is
left, the newest request is preempted: it gives its pages back, returns to the queue and is read again with the tokens it has.

Invariants: a request's text depends on its prompt, its sampling and the weights, not on its neighbours (up to the rounding of
matrix products of different batch sizes). Every token is stamped with the version of the weights that sampled it. After `update`
nothing that was computed with older weights is shared with a new request; running requests keep the keys and
values they have, or compute them again if asked to. Weights that changed without `update` are an error.

On a GPU a step is launched before the host reads the tokens of the one before, so both work at the same time; also where requests
join or leave between the two, the device does not wait for the host. An engine belongs to one thread. The model is shared, not
copied: it is the module that training uses.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter

import torch
from torch import Tensor

from ingot.inference.arrivals import Arrivals
from ingot.inference.batch import DecodingBatch, follow_controls, rows_before
from ingot.inference.decoder import Decoder
from ingot.inference.divided.leader import LeadingMemory, LeadingModel, LeadingWeights
from ingot.inference.draw import draw
from ingot.inference.in_flight import InFlight, check_finite
from ingot.inference.memory import IDLE_CHUNK, Memory, check_sizes, size_caches, size_chunk
from ingot.inference.prefill import next_chunks, read_chunks
from ingot.inference.prompt_graphs import PromptGraphs, graphs_pay
from ingot.inference.request import Completion, Request, Scoring, check_prompt
from ingot.inference.rows import DecodingRows
from ingot.inference.sampling import Sampling
from ingot.inference.speculate.config import Speculation
from ingot.inference.speculate.speculator import Speculator
from ingot.inference.stats import Stats
from ingot.inference.stream import stream_tokens
from ingot.inference.weights import EngineWeights, in_precision
from ingot.model.mixers.cache import PAGE
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError

SCORING = Sampling()  # of a request that samples nothing


class Engine:
    """Continuous batching of `slots` requests of at most `length` tokens each (default: the model's context).

    The cache has pages of `page` tokens for all of them, or as many as fit into `cache_bytes`; requests share whole pages.
    `graphs`: CUDA graphs, where the model allows.
    With a `dtype` other than the model's the engine samples from a copy in that precision, renewed by `update`.
    `speculate`: a step may give a request several tokens; its text is the same. A model over several devices is that of a group
    (divided/group.py): it has no weights before the first `update`, no graphs and no speculation.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        slots: int = 64,
        length: int | None = None,
        cache_bytes: int | None = None,
        chunk: int | None = None,
        page: int = PAGE,
        graphs: bool = True,
        dtype: torch.dtype | None = None,
        speculate: Speculation | None = None,
    ) -> None:
        length = model.config.context if length is None else length
        check_sizes(slots, length, chunk)
        learner = None
        if isinstance(model, LeadingModel):
            model.check_options(dtype, speculates=speculate is not None)
            graphs, cache_bytes = False, model.smallest_cache_budget() if cache_bytes is None else cache_bytes
        if dtype is not None and dtype != model.embedding.weight.dtype:
            learner, model = model, in_precision(model, dtype)
        self.model = model
        self.length = length
        self.slots, self.version = slots, 0
        self._vocabulary = model.config.vocabulary_size or 0
        self._device = model.embedding.weight.device
        on_gpu = self._device.type == "cuda"
        self._chunk, self._given_chunk = chunk or size_chunk(model), chunk is not None
        drafts = speculate is not None and speculate.uses_module(has_module=model.multi_token is not None)
        piece = min(max(self._chunk, 0 if speculate is None else speculate.tokens + 1), self.length)
        cache_shape = size_caches(
            model, slots, self.length, piece=piece, page=page, cache_bytes=cache_bytes, drafts=drafts
        )
        with torch.inference_mode():
            if isinstance(model, LeadingModel):
                self._memory: Memory = LeadingMemory(model, slots, cache_shape)
            else:
                self._memory = Memory(model, slots, cache_shape, drafts=drafts)
            self._rows = DecodingRows(slots, cache_shape, self._memory.padding_slot, self._device)
        self._decoder = Decoder(model, self._memory.caches, self._rows, cache_shape, graphs=graphs and on_gpu)
        self._speculator = None if speculate is None else Speculator(speculate, self._memory, self._decoder)
        self._prompt_graphs: PromptGraphs | None = None
        if self._decoder.uses_graphs and graphs_pay(model) and not drafts:
            self._prompt_graphs = PromptGraphs(model, self._memory, self._decoder.capture)
        self._overlaps = on_gpu and speculate is None  # drafts are made of tokens that the host has seen
        self._waiting = Arrivals()
        self._reading: list[Request] = []
        self._active: list[Request] = []  # in the order of arrival
        self._batch: DecodingBatch | None = None  # what the device's rows are
        self._changed = True  # it must be made anew
        self._flight: InFlight | None = None
        self._timed = 0  # requests with a deadline
        self._numbers = 0
        self._stats = Stats(pages_total=self._memory.pool.count)
        self._weights = LeadingWeights(model) if isinstance(model, LeadingModel) else EngineWeights(model, learner)

    # ---- what callers use

    def complete(self, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling]) -> list[Completion]:
        """Sample a completion for every prompt; the results are in the order of the prompts."""
        if len(prompts) != len(samplings):
            raise IngotError(f"{len(prompts)} prompts but {len(samplings)} samplings", place="engine")
        for number, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
            self._check(prompt, sampling, f"prompt {number}")
        self._weights.check(self.version)
        requests = [self.submit(*pair) for pair in zip(prompts, samplings, strict=True)]
        try:
            for request in requests:
                while request.finish is None:
                    self.step()
        finally:
            for request in requests:  # after Ctrl-C or an error no request stays in the engine
                self.cancel(request)
        return [request.completion() for request in requests]

    def stream(self, prompt: Sequence[int], sampling: Sampling) -> Generator[int, None, None]:
        """The tokens of one completion as they are sampled; closing the iterator frees its slot."""
        self._weights.check(self.version)
        return stream_tokens(self, self.submit(prompt, sampling))

    def update(self, state: Mapping[str, Tensor] | None, version: int, *, keep_caches: bool = True) -> None:
        """Sample with new weights from now on. None: the shared module itself has been trained.

        The weights are compared with `state` by checksum after the copy. Requests that are under way go on with the new
        weights; what they have in their caches stays, or is computed again (`keep_caches=False`).
        """
        if version < self.version:
            raise IngotError(f"version {version} after version {self.version}", place="engine.update")
        with self._starting_over():
            self._land()
        if state is None:
            self._weights.refresh()
        else:
            self._weights.load(state)
        self.version = version
        if not keep_caches:
            self._start_over()
        self._memory.forget([*self._active, *self._reading])

    def close(self) -> None:
        """End the processes of the other devices, where there are any; nothing can be sampled any more."""
        if isinstance(self.model, LeadingModel):
            self.model.group.close()

    @property
    def checksum(self) -> int:
        """The checksum of the weights that it samples with (checksum.py), as of the last update."""
        return self._weights.checksum

    # ---- one step at a time

    def submit(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        deadline: float | None = None,
        follows: Request | None = None,
    ) -> Request:
        """Queue a request; `step` moves it on. It ends `deadline` seconds from now at the latest, if that is given.

        `follows`: the turn of the same conversation before this one, whose position in the queue it keeps. It is
        read while that turn's cache is still there.
        """
        self._check(prompt, sampling, "prompt")
        if not self.busy:  # for each of many it would cost too much
            self._weights.check(self.version)
        limit = min(sampling.max_new_tokens, self.length - len(prompt))
        request = Request(list(prompt), sampling, limit, number=self._numbers if follows is None else follows.number)
        self._numbers += 1
        if request.limit == 0:
            request.finish = "length"
            return request
        request.watch(self.model.tokenizer)
        if deadline is not None:
            request.deadline = time.monotonic() + deadline
            self._timed += 1
        self._waiting.add(request)
        return request

    def submit_scoring(
        self, tokens: Sequence[int], first: int, lasts: Sequence[int] | None = None, likeliest: int = 0
    ) -> Request:
        """Queue tokens to be scored from token `first` on; `step` moves it on, and its `scoring` has the result at the end.

        The last token is not read, so there may be one more than the engine holds. `lasts`: several candidates for the last
        token, scored at the cost of one. `likeliest`: so many tokens are named at each position.
        """
        lasts = tuple(lasts or tokens[-1:])
        check_prompt(tokens, self.length + 1, self._vocabulary, "tokens")
        check_prompt(lasts, len(lasts), self._vocabulary, "last tokens")
        if not 1 <= first < len(tokens):
            raise IngotError(f"scores from token {first} on of {len(tokens)}", place="engine", fix="score from 1 on")
        if not self.busy:
            self._weights.check(self.version)
        request = Request(list(tokens), SCORING, 0, scoring=Scoring(first, lasts, likeliest), number=self._numbers)
        self._numbers += 1
        self._waiting.add(request)
        return request

    def cancel(self, request: Request) -> None:
        """Drop a request, wherever it is; what it has sampled stays with it. One that has ended does not change."""
        if request.finish is None:
            with self._starting_over():
                request.finish = "cancelled"
                self._end(request)

    @property
    def busy(self) -> bool:
        """Whether any request is waiting or active."""
        return bool(self._waiting or self._reading or self._active)

    @property
    def stats(self) -> Stats:
        """Counters."""
        stats = self._stats
        stats.active, stats.waiting = len(self._active) + len(self._reading), len(self._waiting)
        stats.pages_used = self._memory.pool.used
        return stats

    def step(self) -> None:
        """Admit waiting requests, read a chunk of the prompts, and give every active request a token."""
        with self._starting_over():
            self._expire()
            if self._admit_and_read():
                self._admit_and_read()  # requests that waited for a prefix that has been read now
            self._decode()
            self._stats.steps += 1

    @contextmanager
    def _starting_over(self) -> Iterator[None]:
        """After any error, Ctrl-C among them, all requests are read again: half-filled pages must not be used."""
        try:
            with torch.inference_mode():
                yield
        except BaseException:
            self._flight = None
            self._start_over()
            raise

    def _expire(self) -> None:
        """End the requests whose time is over."""
        if not self._timed:
            return
        now = time.monotonic()
        for request in [*self._waiting, *self._reading, *self._active]:
            if request.deadline is not None and request.deadline <= now:
                request.finish = "deadline"
                self._end(request)

    # ---- joining

    def _admit_and_read(self) -> bool:
        """Whether a request waits for what another one has just read."""
        coming = self._admit()
        return self._read() and coming

    def _admit(self) -> bool:
        """Admit waiting requests in the order of their arrival; returns whether one of them waits for what another reads.

        While the engine is nearly full it waits until an eighth of the slots is free: a pass over one short prompt costs nearly
        as much as a step of the whole batch, and a row that stays empty for a while costs nothing.
        """
        present = len(self._active) + len(self._reading)
        if not self._waiting or (present and self._memory.free_slots < max(1, self.slots // 8)):
            return False
        before = len(self._reading)
        coming = self._waiting.admit(self._memory, len(self._active), self._reading)
        self._stats.note_prompts(self._reading[before:])
        self._memory.flush()
        return coming

    def _read(self) -> bool:
        """Read the next `chunk` tokens of the prompts, more where no request waits for its next token. Requests whose prompt
        is read join the batch; returns whether any did."""
        idle = self._chunk if self._active or self._given_chunk else max(self._chunk, IDLE_CHUNK)
        chunks = next_chunks(self._reading, idle, self._chunk)
        if self._prompt_graphs is None or not self._prompt_graphs.read(chunks):
            module = None if self._speculator is None else self._speculator.module
            read_chunks(self.model, self._memory, chunks, module)
        for request, _, end in chunks:
            self._memory.filled(request, end)
            if end == request.size - 1 and request.scoring is None:
                self._memory.snapshot(request, end)
        through = [request for request in self._reading if request.done == request.size - 1]
        if through:
            self._end_scored([request for request in through if request.scoring is not None])
            decoded = [request for request in through if request.scoring is None]
            self._reading = [request for request in self._reading if request.done < request.size - 1]
            if decoded:
                self._active = sorted([*self._active, *decoded], key=attrgetter("number"))
                self._changed = True
        return bool(through)

    def _end_scored(self, requests: Sequence[Request]) -> None:
        """Finish requests that only score their prompt: nothing is decoded for them."""
        for request in requests:
            assert request.scoring is not None
            check_finite([logprob for logprob, _ in request.scoring.result()], self.version, self._memory)
            request.finish = "scored"
            self._end(request)

    # ---- decoding

    def _decode(self) -> None:
        """Launch a step for all active requests, then read the tokens of the step before it; without overlap, its own."""
        controls = None if self._batch is None else self._batch.controls
        if controls is not None and (controls.needs_host or (self._changed and controls.counts_tokens)):
            self._land()
        batch = self._form()
        while batch is not None and not self._reserve(batch):
            self._land()  # what ends there may leave pages
            if not self._reserve(batch):
                self._preempt()
            batch = self._form()
        if batch is None:
            self._land()
            return
        if self._speculator is not None:
            self._speculate(self._speculator, batch)
            return
        flight = self._launch(batch)
        before, self._flight = self._flight, flight
        if before is not None:
            self._settle(before)
        if not self._overlaps:
            self._land()

    def _form(self) -> DecodingBatch | None:
        """The batch of the active requests, made anew if they have changed; None if there is nothing to decode.

        Rows that stay are moved on the device. Those whose last token is in flight leave, and are settled with that step.
        """
        if not self._changed:
            return self._batch if self._active else None
        leaving = set[int]() if self._flight is None else self._flight.leaving()
        requests = [request for request in self._active if id(request) not in leaving]
        if not requests:
            return None
        padded, sources = self._decoder.padded(len(requests)), rows_before(requests, self._batch)
        self._decoder.prepare(padded)
        if self._speculator is not None:
            self._speculator.prepare(padded)
        self._rows.load(requests, sources, padded)
        controls = follow_controls(requests, self._batch, sources, self._device, self._vocabulary)
        page = self._memory.cache_shape.page
        self._batch, self._changed = DecodingBatch(requests, controls, padded, page, self._batch, sources), False
        return self._batch

    def _reserve(self, batch: DecodingBatch) -> bool:
        """A page for every row that is about to need one; false if there are too few."""
        added = []
        for row in batch.short():
            request = batch.requests[row]
            page = self._memory.grow(request)
            if page is None:
                break
            batch.grown(row)
            added.append((row, len(request.pages) - 1, page))
        if added:
            self._rows.grow(added)
        return not batch.short()

    def _preempt(self) -> None:
        """The request that came last gives back all it has."""
        last = max([*self._active, *self._reading], key=attrgetter("number"))
        (self._active if last in self._active else self._reading).remove(last)
        self._drop(last)
        self._memory.leave(last)
        self._waiting.add(last)
        self._changed = True
        self._stats.preemptions += 1

    def _launch(self, batch: DecodingBatch) -> InFlight:
        batch.kill(batch.finishing_rows())
        if fallen := batch.take_fallen():
            self._rows.kill(fallen)
        if batch.controls.needs_host:
            batch.controls.set_masks(
                {row: one.mask() for row, one in enumerate(batch.requests) if one.state is not None}
            )
        logits_BV = self._decoder.logits(batch.padded, min(batch.reach, self.length))
        drawn = draw(logits_BV[: len(batch)], batch.controls, self._rows.steps_B[: len(batch)])
        self._rows.advance(drawn.ids_B)
        flight = InFlight(batch, drawn, self.version)
        batch.advance()
        return flight

    def _land(self) -> None:
        """Look at the tokens of the step that is in flight, if there is one."""
        flight, self._flight = self._flight, None
        if flight is not None:
            self._settle(flight)

    def _settle(self, flight: InFlight) -> None:
        """Give every request of the step its token."""
        given, ended = flight.give(self._memory)
        self._stats.generated_tokens += given
        for request in ended:
            self._end(request)

    def _speculate(self, speculator: Speculator, batch: DecodingBatch) -> None:
        """Give every request the tokens that it would get in the next steps, as far as drafts foresee them (speculate/)."""
        drafts = speculator.propose(batch)
        if speculator.module is None and not any(drafts):
            self._settle(self._launch(batch))
            return
        verified = speculator.verify(batch, drafts, self.version)
        check_finite(verified.wait(), self.version, self._memory)
        accepted = verified.give()
        self._stats.generated_tokens += sum(accepted)
        speculator.settle(batch, verified, accepted)
        self._stats.drafted_tokens += sum(map(len, drafts))
        self._stats.accepted_tokens += sum(accepted) - len(accepted)
        for request in [one for one in batch.requests if one.finish is not None]:
            self._end(request)

    # ---- leaving

    def _end(self, request: Request) -> None:
        """Free everything that a finished or cancelled request holds, even if a part of that fails."""
        self._timed -= request.deadline is not None
        if request.slot is None:
            self._waiting.remove(request)
            return
        inside = self._reading if request in self._reading else self._active
        try:
            if request.finish in ("stop", "length"):  # its text may go on in a next turn
                # the step in flight reads the last token, too, where it was not known to be the last
                reads_last = self._flight is not None and len(request.tokens) < request.limit
                self._memory.snapshot(request, request.size - 1 + reads_last)
            self._drop(request)
        finally:
            inside.remove(request)
            self._memory.leave(request)

    def _drop(self, request: Request) -> None:
        """Its row has no request: computing on is cheap for a while where the host would have to wait for the device."""
        batch = self._batch
        row = None if batch is None else batch.row(request)
        if batch is None or row is None:
            return
        batch.kill([row])
        if not self._overlaps or 4 * batch.dead > len(batch):
            self._changed = True

    def _start_over(self) -> None:
        """Send the requests back to the queue; they are read again with the tokens they have. Those at their end leave."""
        inside = sorted([*self._active, *self._reading], key=attrgetter("number"))
        for request in (*inside, *self._waiting):  # one that was about to enter may hold something, too
            self._memory.leave(request)
        self._memory.drop_copies()
        self._timed -= sum(request.deadline is not None for request in inside if request.finish is not None)
        self._active, self._reading, self._batch, self._changed = [], [], None, True
        for request in reversed(inside):
            request.even_out()
            if request.finish is None:
                self._waiting.add(request)

    def _check(self, prompt: Sequence[int], sampling: Sampling, place: str) -> None:
        check_prompt(prompt, self.length, self._vocabulary, place)
        sampling.check_tokens(self._vocabulary)
