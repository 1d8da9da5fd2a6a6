"""One step of speculative decoding: makes drafts, verifies them in one pass, and keeps those that the model agrees with.

A pass of T tokens costs little more than one of a single token as long as reading the weights takes most of the time.
So a row reads [last token, draft_1 … draft_k] at once; position t gives the logits that a pass after draft_t would give, and

    x_t = the token drawn from them with the request's own u(seed, index + t)          (draw.py)

The row gets x_0 … x_m, where m is the number of leading drafts with draft_{t+1} = x_t: exactly the tokens that it would have got
one by one, since a text is a function of weights, prompt and seed. Nothing else is needed to keep the distribution. A draft is
accepted with probability p(draft), as by the rejection sampling of Leviathan et al. (arXiv 2211.17192) and Chen et al.
(arXiv 2302.01318) for drafts that are not drawn: min(1, p/q) with q = 1.

Invariants: after a step, caches hold what is needed of the first size − 1 tokens of each context (a ring may hold rejected
drafts beyond, which are overwritten before anything reads them). Drafts take free pages, but never preempt a request. Requests
whose next distribution depends on the tokens drawn in the same pass (penalties, constraints) have no drafts. With LongRoPE a pass
rotates all its tokens by the length that the text has after it: drafts do not cross the length at which that changes.

Shapes: B rows, T tokens of a row, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ingot.inference.batch import DecodingBatch
from ingot.inference.decoder import Decoder
from ingot.inference.draw import draw_positions
from ingot.inference.in_flight import InFlight
from ingot.inference.memory import Memory, simple_caches
from ingot.inference.request import Request
from ingot.inference.speculate.config import Speculation
from ingot.inference.speculate.module import ModuleDrafter
from ingot.inference.speculate.ngram import NgramDrafter
from ingot.inference.speculate.saved_states import SavedStates
from ingot.inference.speculate.verifier import Verifier
from ingot.model.context import Context
from ingot.model.mixers.cache import StateCache
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.scaling import LongRopeScaling
from ingot.model.transformer import Transformer
from ingot.workspace.errors import IngotError


@dataclass
class Verified:
    """A pass over last tokens and drafts: what was read, computed and drawn."""

    drafts: Sequence[Sequence[int]]
    flight: InFlight
    ids_BT: Tensor
    tokens_BT: Tensor
    positions_BT: Tensor
    states_BTD: Tensor
    reach: int

    drawn: list[list[tuple[int, float]]] = field(default_factory=list)  # of each row, as far as they count

    def wait(self) -> list[float]:
        """Once the pass is there: the log-probabilities of all tokens that count."""
        ids, logprobs = self.flight.wait()
        for row, draft in enumerate(self.drafts):
            start = end = row * self.ids_BT.shape[1]
            while end - start < len(draft) and ids[end] == draft[end - start]:
                end += 1
            self.drawn.append(list(zip(ids[start : end + 1], logprobs[start : end + 1], strict=True)))
        return [logprob for tokens in self.drawn for _, logprob in tokens]

    def give(self) -> list[int]:
        """Give every request its tokens up to one that ends it. How many each has got."""
        accepted = []
        for row, request in enumerate(self.flight.batch.requests):
            for position, (token, logprob) in enumerate(self.drawn[row]):
                if self.flight.has_more:
                    self.flight.add_more(row * self.ids_BT.shape[1] + position, request)
                request.take(token, logprob, self.flight.version)
                if request.finish is not None:
                    break
            accepted.append(position + 1)
        return accepted


class Speculator:
    """Drafts and verifies for an engine with these parts."""

    def __init__(self, options: Speculation, memory: Memory, decoder: Decoder) -> None:
        model = decoder.model
        self._model, self._memory, self._rows = model, memory, decoder.rows
        self._tokens, self._borders = options.tokens, _borders(model)
        if any(isinstance(part, StateCache) for part in simple_caches(memory.draft_cache)):
            raise IngotError(
                "the multi-token module of the model is recurrent: its state cannot take back what it drafts",
                place="speculate",
                fix="use kind ngram",
            )
        self._saved = SavedStates(memory.caches)
        self._verifier = Verifier(decoder, options.tokens + 1, graphs=not self._saved.needed)
        uses_module = options.uses_module(has_module=model.multi_token is not None)
        self.module = ModuleDrafter(model, memory.draft_cache, memory.cache_shape.length) if uses_module else None
        self._drafter = self.module or NgramDrafter(options)

    # ---- before the pass

    def prepare(self, size: int) -> None:
        """There will be passes of so many rows."""
        self._verifier.prepare(size)

    def propose(self, batch: DecodingBatch) -> list[list[int]]:
        """The drafts of every row, with pages to read them into."""
        drafts = [self._drafter.propose(request, self._most(request)) for request in batch.requests]
        fitting = self._take_pages(batch, [len(draft) for draft in drafts])
        return [draft[:count] for draft, count in zip(drafts, fitting, strict=True)]

    def _most(self, request: Request) -> int:
        """How many drafts the request may have: with the token after them it must not exceed its limit."""
        if request.sampling.penalises or request.state is not None:
            return 0
        within = [border - request.size for border in self._borders if border >= request.size]
        return min(self._tokens, request.limit - len(request.tokens) - 1, *within)

    def _take_pages(self, batch: DecodingBatch, wanted: Sequence[int]) -> list[int]:
        """Pages for so many drafts of each row, while there are any to spare; how many drafts each row has pages for."""
        added, fitting = [], []
        for row, (request, count) in enumerate(zip(batch.requests, wanted, strict=True)):
            while count and batch.spare(row) < count:
                page = self._memory.grow(request, spare=len(batch))
                if page is None:
                    break
                batch.grown(row)
                added.append((row, len(request.pages) - 1, page))
            fitting.append(max(0, min(count, batch.spare(row))))
        if added:
            self._rows.grow(added)
        return fitting

    # ---- the pass

    def verify(self, batch: DecodingBatch, drafts: Sequence[Sequence[int]], version: int) -> Verified:
        """Read last tokens and drafts, and draw at every position."""
        count, rows, verifier = len(batch), self._rows, self._verifier
        tokens_BT = verifier.load([request.last for request in batch.requests], drafts)
        length = tokens_BT.shape[1]
        positions_BT, reach = (
            verifier.positions(count, length),
            min(batch.reach + length - 1, self._memory.cache_shape.length),
        )
        if self._saved.needed:
            self._saved.save(rows.slots_B[:count])
        states_BTD = verifier.states(batch.padded, length, reach)[:count]
        controls = batch.controls.repeated(length)
        if controls.needs_host:
            masks = {row: one.mask() for row, one in enumerate(batch.requests) if one.state is not None}
            controls.set_masks(
                {row * length + position: mask for row, mask in masks.items() for position in range(length)}
            )
        drawn = draw_positions(self._model.head(states_BTD), batch.controls, rows.steps_B[:count])
        flight = InFlight(batch, drawn, version)
        return Verified(drafts, flight, drawn.ids_B.view(count, length), tokens_BT, positions_BT, states_BTD, reach)

    # ---- after it

    def settle(self, batch: DecodingBatch, verified: Verified, accepted: Sequence[int]) -> None:
        """The rows have got `accepted` tokens each: move on, to caches of all tokens but the last, and draft again."""
        if self._saved.needed:
            self._reread(verified, accepted)
        for request in batch.requests:
            self._memory.filled(request, request.size - 1)
        self._rows.move([request.last for request in batch.requests], accepted)
        batch.move(accepted)
        if self.module is None:
            return
        count = len(batch)
        fitting = self._take_pages(batch, [max(0, self._most(request)) for request in batch.requests])
        context = Context(
            verified.positions_BT,
            slots_B=self._rows.slots_B[:count],
            lengths_B=self._sent(accepted),
            reach=verified.reach,
            pages_BR=self._rows.pages_BR[:count],
        )
        self.module.look_ahead(batch.requests, verified.states_BTD, verified.ids_BT, context, fitting)

    def _reread(self, verified: Verified, accepted: Sequence[int]) -> None:
        """Restore the states of rows whose drafts were not all accepted, and read the accepted tokens again."""
        wrong = [row for row, draft in enumerate(verified.drafts) if accepted[row] < 1 + len(draft)]
        if not wrong:
            return
        lengths = [accepted[row] for row in wrong]
        rows_B, longest = self._sent(wrong), max(lengths)
        self._saved.restore(self._rows.slots_B, rows_B)
        tokens_BT, positions_BT = (x_BT[rows_B, :longest] for x_BT in (verified.tokens_BT, verified.positions_BT))
        self._model.hidden(
            tokens_BT,
            positions_BT,
            caches=self._memory.caches,
            slots=self._rows.slots_B[rows_B],
            pages=self._rows.pages_BR[rows_B],
            lengths=self._sent(lengths),
            reach=verified.reach,
        )

    def _sent(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values).to(self._memory.device)


def _borders(model: Transformer) -> set[int]:
    """Lengths of text at which the model's computation changes (LongRoPE)."""
    ropes = [getattr(getattr(module, "config", None), "rope", None) for module in model.blocks.modules()]
    scalings = [rope.scaling for rope in ropes if isinstance(rope, RopeConfig)]
    return {scaling.original_context for scaling in scalings if isinstance(scaling, LongRopeScaling)}
