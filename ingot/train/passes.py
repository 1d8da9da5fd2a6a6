"""The forward and backward passes of one optimizer step, micro-batch after micro-batch, without waiting for the device.

    loss = Σ_terms coefficient · (Σ over the step's tokens) / (denominator of the whole step)
         + Σ_parts (loss that a part of the model reports, summed over its tokens) / (tokens of the whole step)

Each pass adds its share to the gradients. Denominators and tokens are those of the whole step, over all micro-batches and all
ranks, so that neither changes the numbers. Pipelines run the same passes in another order (parallel/pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.metadata import with_metadata
from ingot.train.batches import lengthen
from ingot.train.bf16_copies import Bf16Copies
from ingot.train.device import precision_context
from ingot.train.gradients import gradient_norms
from ingot.train.losses.score import StepTerms, has_known_factors, score
from ingot.train.losses.terms import NOTHING_MORE, LossTerm, Scored, Wants
from ingot.train.parallel.context import make_context_parallel
from ingot.train.parallel.layout import AXES, Layout
from ingot.train.parallel.shard import reduce_over_copies


@dataclass
class Sums:
    """The sums over the passes of a step on this rank; every value is a tensor on the device."""

    parts: dict[str, Tensor] = field(default_factory=dict)  # shares of the loss and of all that is logged
    source_loss: Tensor | None = None  # Σ −w log p by source, and
    source_weight: Tensor | None = None  # Σ w by source
    record: Record = field(default_factory=Record)  # the routers' loads, the largest logits
    first: tuple[Tensor, Tensor] | None = None  # |g|² after the first pass, and its tokens, if the noise is measured

    def add(self, parts: Mapping[str, Tensor]) -> None:
        """Add the shares of one pass."""
        for name, part in parts.items():
            self.parts[name] = self.parts[name] + part if name in self.parts else part

    def map(self, change: Callable[[Tensor], Tensor]) -> Sums:
        """The same with every tensor changed."""
        pair = None if self.first is None else (change(self.first[0]), change(self.first[1]))
        losses, weights = (None if each is None else change(each) for each in (self.source_loss, self.source_weight))
        record = Record(
            loads={layer: load.map(change) for layer, load in self.record.loads.items()},
            sum_ranks=self.record.sum_ranks,
            max_logits={layer: change(maxima_H) for layer, maxima_H in self.record.max_logits.items()},
        )
        return Sums({name: change(part) for name, part in self.parts.items()}, losses, weights, record, pair)


class Objective:
    """The loss of a micro-batch as its share of the step's loss."""

    def __init__(
        self,
        terms: Sequence[LossTerm],
        sources: int = 0,
        temperature: float = 1.0,
        *,
        want_logits: bool = False,
        measure_noise: bool = False,
    ) -> None:
        self.terms, self.sources, self.temperature = terms, sources, temperature
        self.want_logits, self.measure_noise = want_logits, measure_noise
        self.wants = Wants.of(terms)

    def loss(
        self,
        scored: Scored,
        record: Record,
        batch: Batch,
        denominators: Mapping[str, Tensor],
        tokens: Tensor,
        sums: Sums,
    ) -> Tensor:
        """The share of one pass, to be differentiated; what is logged goes into `sums`."""
        parts: dict[str, Tensor] = {}
        loss = torch.zeros((), device=scored.logprobs.device)
        if scored.loss is not None:
            loss = scored.loss
        for term in self.terms:
            numerator, details = term.numerator(scored)
            denominator = denominators[term.name].to(numerator.dtype)
            value = numerator / denominator
            if scored.loss is None:
                loss = loss + term.coefficient * value
            parts |= {name: detail / denominator for name, detail in details.items()}
            parts[term.name] = value.detach()
        loss = self.add_reported(loss, record, tokens, parts)
        sums.add({**parts, "loss": loss.detach()})
        if self.sources and batch.sources is not None and scored.rows is not None:
            self._by_source(scored, batch.sources, sums)
        return loss

    def add_reported(self, loss: Tensor, record: Record, tokens: Tensor, parts: dict[str, Tensor]) -> Tensor:
        """The loss with those that parts of the model reported in one pass; each goes into `parts` too."""
        for name, total in record.losses.items():
            value = total / tokens.to(total.dtype)
            loss = loss + value
            parts[name] = value.detach()
        return loss

    def _by_source(self, scored: Scored, sources: Tensor, sums: Sums) -> None:
        """Add the tokens' losses to those of their sources."""
        assert scored.rows is not None
        source_n, weight_n = sources[scored.rows], scored.streams["weight"]
        losses, weights = (torch.zeros(self.sources, device=weight_n.device) for _ in range(2))
        losses.scatter_add_(0, source_n, -(scored.logprobs.detach() * weight_n).float())
        weights.scatter_add_(0, source_n, weight_n)
        sums.source_loss = losses if sums.source_loss is None else sums.source_loss + losses
        sums.source_weight = weights if sums.source_weight is None else sums.source_weight + weights


class Passes:
    """Runs the passes of a step one after the other on the whole model."""

    def __init__(
        self,
        model: Transformer,
        objective: Objective,
        device: torch.device,
        dtype: torch.dtype,
        layout: Layout | None = None,
    ) -> None:
        self.model, self.objective, self.device, self.dtype = model, objective, device, dtype
        self.layout, self.context_parallel = layout, make_context_parallel(model, layout, objective.terms)
        self.sum_ranks = (lambda tensor: tensor) if layout is None else layout.sum_over_loss
        self._names: list[str] = []  # names of the sums' parts, on all ranks
        self.counted_elsewhere: frozenset[str] = frozenset()  # parameters whose gradients count on another rank

    @cached_property
    def copies(self) -> Bf16Copies | None:
        """Copies of the weights in the dtype of the products, where they are not gathered in it anyway."""
        if self.layout is not None or self.dtype.itemsize != 2:
            return None
        fused = has_known_factors(self.objective.terms, self.objective.temperature)
        return Bf16Copies(self.model, self.dtype, head=fused)

    def precision(self) -> AbstractContextManager[object]:
        """A context in which matrix products run in the chosen dtype."""
        return precision_context(self.device, self.dtype)

    def run(self, batches: Sequence[Batch], denominators: Mapping[str, Tensor], tokens: Tensor) -> Sums:
        """Fill the gradients with those of the whole step (of this rank's share); returns this rank's sums."""
        sums = Sums(record=Record(sum_ranks=self.sum_ranks))
        with self.copies.in_use() if self.copies is not None else nullcontext():
            for number, batch in enumerate(batches, 1):
                reduce_over_copies(self.model, number == len(batches))
                self.run_one(batch.to(self.device), denominators, tokens, sums)
                if number == 1 and self.objective.measure_noise:
                    sums.first = self._first_pass(batch)
        return sums

    def _first_pass(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """|g|² of the gradients so far, and how many tokens of how many ranks they are from."""
        gradients = [each.grad for each in self.model.parameters() if each.grad is not None]
        tokens = torch.full((), float(batch.token_count), dtype=torch.float64, device=self.device)
        return gradient_norms(gradients).square().sum(), self.sum_ranks(tokens)

    def run_one(self, batch: Batch, denominators: Mapping[str, Tensor], tokens: Tensor, sums: Sums) -> None:
        """Forward and backward over one micro-batch."""
        objective = self.objective
        record = self.record(sums)
        step = StepTerms(objective.terms, denominators, None if self.copies is None else self.copies.head)
        with self.precision():
            further = record, objective.wants, step, self.context_parallel
            scored = score(self.model, batch, objective.temperature, *further)
        objective.loss(scored, record, batch, denominators, tokens, sums).backward()
        sums.record.add_loads(record)
        sums.record.add_all_max_logits(record)

    def record(self, sums: Sums) -> Record:
        """For one more pass of a step whose earlier passes made these sums."""
        wants = self.objective.want_logits
        return Record(before=sums.record.loads, sum_ranks=self.sum_ranks, want_logits=wants)

    def score(self, batch: Batch, temperature: float | None = None, wants: Wants = NOTHING_MORE) -> Scored:
        """A forward pass alone, for measuring, at the loss's temperature if no other is given.

        Ranks that share rows (context parallelism) score different tokens of them. In a pipeline only ranks with the last stage
        have tokens in the result.
        """
        batch, temperature = self.measured(batch), self.objective.temperature if temperature is None else temperature
        with self.precision():
            return score(self.model, batch, temperature, wants=wants, context_parallel=self.context_parallel)

    def measured(self, batch: Batch) -> Batch:
        """A batch on the device, with rows that all ranks which share them can divide, and with its metadata.

        Counted on the device, documents would cut a compiled block into pieces.
        """
        if batch.metadata is None:
            parts = 1 if self.context_parallel is None else 2 * self.context_parallel.size
            batch = with_metadata(lengthen(batch, parts), pin=self.device.type == "cuda")
        return batch.to(self.device)

    def add_ranks(self, sums: Sums) -> None:
        """Make the sums of this rank those of the whole step, the same on all ranks."""
        layout = self.layout
        if layout is None:
            return
        self._names = self._names or layout.union(sums.parts, "pipeline")  # only the last stage has the terms' shares
        zero, nothing = torch.zeros((), device=self.device), torch.zeros(self.objective.sources, device=self.device)
        parts = torch.stack([sums.parts.get(name, zero).double() for name in self._names])
        sources = [nothing if each is None else each for each in (sums.source_loss, sums.source_weight)]
        total = torch.cat([parts, *(each.double() for each in sources)])
        layout.sum_over(total, *AXES[:-1])  # tensor ranks have the same
        sizes = [len(self._names), self.objective.sources, self.objective.sources]
        parts, sums.source_loss, sums.source_weight = total.split(sizes)
        sums.parts = dict(zip(self._names, parts.unbind(), strict=True))
        sums.record.sum_over_ranks()
        sums.record.max_over_ranks(lambda tensor: layout.max_over(tensor, *AXES[:-1]))
