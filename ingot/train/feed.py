"""Supplies the loop with each step's batches: counts and checks them, and prepares them ahead of time where possible.

What a loss is divided by is counted here, on the host, from the batches of this rank; the counts of the other ranks are added
on the device. Counting before the batches are copied there means that nothing waits for the device.

A step that has nothing to learn from is an error of the data, unless the source says that it may happen (`may_be_empty`): then
the denominator is 1 and the numerator 0, on all ranks.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ingot.tokens.batch import Batch
from ingot.tokens.metadata import Sizes, with_metadata
from ingot.tokens.prefetch import Prefetcher
from ingot.train.batches import Shapes, lengthen
from ingot.train.losses.terms import LossTerm
from ingot.train.parallel.layout import Layout
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed

NEVER = 1 << 62  # the step at which a run surely ends


@dataclass(frozen=True)
class Prepared:
    """This rank's micro-batches of a step, on the host."""

    batches: Sequence[Batch]
    counts: dict[str, Tensor]  # the terms' denominators, of this rank
    tokens: int  # real tokens, of this rank
    logged: dict[str, float]
    waited: float = 0.0  # seconds that the loop waited for it
    may_be_empty: bool = False  # a denominator of 0 stands for a loss of 0

    def totals(self, layout: Layout | None, device: torch.device) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """Denominators and tokens of the whole step, and 1 if it has anything to learn from, else 0; on the device."""
        names = list(self.counts)
        listed = [*(self.counts[name].double() for name in names), torch.tensor(self.tokens, dtype=torch.float64)]
        total = torch.stack(listed)
        if device.type == "cuda":
            total = total.pin_memory().to(device, non_blocking=True)
        if layout is not None:
            total = layout.sum_over(total, "replicate", "shard")  # every context rank has counted whole rows
        denominators = total[:-1]
        learns = (denominators != 0).any().to(total.dtype)
        if self.may_be_empty:  # every rank sees the same sums, so all of them decide alike
            denominators = torch.where(denominators == 0, torch.ones_like(denominators), denominators)
        return dict(zip(names, denominators, strict=True)), total[-1], learns


class Feed:
    """Asks the source for steps; if they do not depend on training (`Source.ahead`), a thread makes them ahead of time."""

    def __init__(
        self, source: Source, terms: Sequence[LossTerm], layout: Layout | None, first: int, device: torch.device
    ) -> None:
        self.source, self.terms, self.layout = source, terms, layout
        self.cuda = device.type == "cuda"
        self.shapes, self.sizes = Shapes(), Sizes()
        self.rank, self.world = (0, 1) if layout is None else (layout.data_rank, layout.data_world)
        self.pieces = 1 if layout is None or layout.size("context") == 1 else 2 * layout.size("context")
        self.ahead = Prefetcher(self.prepare, first, NEVER) if source.ahead else None

    def get(self, step: int) -> Prepared:
        """The batches of `step`, with the seconds that were waited for them."""
        if self.ahead is not None:
            prepared, waited = self.ahead.get(step)
        else:
            began = time.monotonic()
            prepared, waited = self.prepare(step), time.monotonic() - began
        return dataclasses.replace(prepared, waited=waited)

    def prepare(self, step: int) -> Prepared:
        """Make and count the batches of `step`."""
        batches, logged = self.source.batches(step, self.rank, self.world)
        if self.cuda and self.source.varies:
            batches = self.shapes.round(batches)
        batches = [lengthen(batch, self.pieces) for batch in batches]  # packed rows are as long as the fullest
        counts = {}
        for term in self.terms:
            _check_streams(step, term, batches)
            counts[term.name] = torch.stack([term.denominator(batch.streams) for batch in batches]).sum()
            empty = self.source.may_be_empty and counts[term.name] == 0
            if self.world == 1 and not empty and not counts[term.name] > 0:
                raise CheckFailed(
                    f"step {step} has nothing to learn from: the denominator of the loss term {term.name!r} is "
                    f"{float(counts[term.name])}",
                    fix="check the loss mask of the data",
                )
        tokens = sum(batch.token_count for batch in batches)
        if self.cuda:
            batches = [with_metadata(batch, varies=self.source.varies) for batch in batches]
            batches = [batch.pinned() for batch in (self.sizes.same(batches) if self.source.varies else batches)]
        return Prepared(batches, counts, tokens, logged, may_be_empty=self.source.may_be_empty)

    def restart(self, step: int) -> None:
        """Drop the steps that were made ahead: the source now gives other batches from `step` on."""
        if self.ahead is not None:
            self.ahead.restart(step)

    def close(self) -> None:
        """Stop making steps ahead."""
        if self.ahead is not None:
            self.ahead.close()


def _check_streams(step: int, term: LossTerm, batches: Sequence[Batch]) -> None:
    missing = {name for batch in batches for name in term.needs if name not in batch.streams}
    if missing:
        raise CheckFailed(
            f"step {step}: the loss term {term.name!r} reads {', '.join(sorted(missing))}, which a batch does not have",
            fix=f"stamp the sequences with the streams {', '.join(term.needs)}",
        )
