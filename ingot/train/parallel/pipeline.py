"""Pipeline parallelism: runs a step's passes, with stages on different ranks working on different micro-batches at the same time.

    forward of stage s     take x from stage s − 1, run the layers, give x to stage s + 1; the last stage has the loss
    backward of stage s    take ∂loss/∂x from stage s + 1, run backward, give ∂loss/∂(what entered) to stage s − 1

timetable.py gives the order, stages.py cuts the model. All ranks of a pipeline read the same rows: only
activations and their gradients are sent. A loss that a part of a middle stage reports (a router's balance) is differentiated
there, together with what comes from above:  ∂(what entered) = Jᵀ·(what came) + ∂(reported)/∂(what entered).

Exchanges follow the slots of the timetable: after each slot a rank sends what it made and opens a buffer for what the others
made for it, all at once (`batch_isend_irecv`). Every rank goes through the same slots, so sends and receives always match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

from ingot.model.record import Record, RouterLoad
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.losses.score import StepTerms, run_model, score_states
from ingot.train.losses.terms import NOTHING_MORE, Scored, Wants
from ingot.train.parallel.layout import AXES, Layout
from ingot.train.parallel.shard import reduce_over_copies
from ingot.train.parallel.stages import StagedTransformer
from ingot.train.parallel.timetable import Action, timetable
from ingot.train.passes import Objective, Passes, Sums


def make_passes(
    model: Transformer, objective: Objective, device: torch.device, dtype: torch.dtype, layout: Layout | None = None
) -> Passes:
    """The passes of a step for this layout."""
    if layout is not None and isinstance(model, StagedTransformer):
        return PipelinePasses(model, objective, device, dtype, layout)
    return Passes(model, objective, device, dtype, layout)


class PipelinePasses(Passes):
    """Runs the passes of a step in the order of the pipeline on this rank's stages."""

    model: StagedTransformer
    layout: Layout

    def __init__(
        self,
        model: StagedTransformer,
        objective: Objective,
        device: torch.device,
        dtype: torch.dtype,
        layout: Layout,
    ) -> None:
        super().__init__(model, objective, device, dtype, layout)
        self.rank, self.ranks = layout.rank("pipeline"), layout.size("pipeline")
        self.transfers = Transfers(layout, model.stages)
        self._reports: tuple[list[Any], list[Any]] | None = None  # what layers of all stages report
        if model.ends_share and self.rank == self.ranks - 1:
            self.counted_elsewhere = frozenset({"embedding.weight"})  # by the first stage
        # NCCL needs a collective of the whole group before two of its ranks can exchange anything
        layout.sum_over(torch.zeros((), device=device), "pipeline")

    def run(self, batches: Sequence[Batch], denominators: Mapping[str, Tensor], tokens: Tensor) -> Sums:
        sums = Sums(record=Record(sum_ranks=self.sum_ranks))
        here = [batch.to(self.device) for batch in batches]
        # by stage and micro-batch: what entered, what left, the loss
        open_passes: dict[tuple[int, int], tuple[Tensor | None, Tensor, Tensor]] = {}

        def compute(action: Action) -> Tensor | None:
            key, given = (action.stage, action.micro), self.transfers.take(action)
            if action.forward:
                open_passes[key] = self._forward(action.stage, given, here[action.micro], denominators, tokens, sums)
                return open_passes[key][1].detach()
            reduce_over_copies(self.model, action.micro == len(here) - 1)
            return self._backward(*open_passes.pop(key), given)

        for slot in timetable(self.ranks, self.layout.config.pipeline_stages, len(here)):
            action = slot[self.rank]
            made = None if action is None else compute(action)
            self.transfers.exchange(slot, made, lambda micro: self._empty(here[micro], self.layout.size("context")))
        self.transfers.wait()
        self._add_ends()
        return sums

    def score(self, batch: Batch, temperature: float | None = None, wants: Wants = NOTHING_MORE) -> Scored:
        batch, x_BTD = self.measured(batch), None
        for stage in self.model.layers:
            if stage > 0:
                x_BTD = self.transfers.receive(stage - 1, self._empty(batch, self.layout.size("context")))
            with self.precision():
                x_BTD = run_model(self.model, batch, None, self.context_parallel, stage=stage, entering_BTD=x_BTD)
            if stage < self.model.stages - 1:
                self.transfers.send(stage + 1, x_BTD)
        self.transfers.wait()
        if self.rank < self.ranks - 1:
            nothing = torch.zeros(0, device=self.device)
            return Scored(nothing, dict.fromkeys(batch.streams, nothing))
        assert x_BTD is not None
        temperature = self.objective.temperature if temperature is None else temperature
        with self.precision():
            return score_states(
                self.model, x_BTD, batch, temperature, wants=wants, context_parallel=self.context_parallel
            )

    def add_ranks(self, sums: Sums) -> None:
        """Also: every rank learns what layers of other stages reported, so that all log and guard the same."""
        loads, logits = sums.record.loads, sums.record.max_logits
        if self._reports is None:
            kinds = [
                (layer, tuple((each.shape, each.dtype) for each in load.tensors())) for layer, load in loads.items()
            ]
            heads = [(layer, len(maxima_H)) for layer, maxima_H in logits.items()]
            self._reports = sorted(self.layout.union(kinds, "pipeline")), sorted(self.layout.union(heads, "pipeline"))
        for layer, kind in self._reports[0]:
            zeros = (torch.zeros(shape, dtype=dtype, device=self.device) for shape, dtype in kind)
            loads.setdefault(layer, RouterLoad(*zeros))
        for layer, count in self._reports[1]:
            logits.setdefault(layer, torch.full((count,), -torch.inf, device=self.device))
        sums.record.sum_ranks = lambda tensor: self.layout.sum_over(tensor, *AXES[:-1])
        super().add_ranks(sums)

    def _forward(
        self,
        stage: int,
        entering: Tensor | None,
        batch: Batch,
        denominators: Mapping[str, Tensor],
        tokens: Tensor,
        sums: Sums,
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """One micro-batch through one stage: what entered, what left, and this stage's share of the loss."""
        objective, model, parts = self.objective, self.model, dict[str, Tensor]()
        record = self.record(sums)
        if entering is not None:
            entering.requires_grad_()
        with self.precision():
            left = run_model(model, batch, record, self.context_parallel, stage=stage, entering_BTD=entering)
            if stage == model.stages - 1:
                further = record, objective.wants, StepTerms(objective.terms, denominators), self.context_parallel
                scored = score_states(model, left, batch, objective.temperature, *further)
        if stage == model.stages - 1:
            loss = objective.loss(scored, record, batch, denominators, tokens, sums)
        else:
            loss = objective.add_reported(torch.zeros((), device=self.device), record, tokens, parts)
            sums.add({**parts, "loss": loss.detach()})
        sums.record.add_loads(record)
        sums.record.add_all_max_logits(record)
        return entering, left, loss

    def _backward(self, entering: Tensor | None, left: Tensor, loss: Tensor, gradient: Tensor | None) -> Tensor | None:
        """The same backward; `gradient` is that of what left, which the last stage has used up in its loss."""
        roots: list[tuple[Tensor, Tensor | None]] = [(loss, None)]
        roots += [] if gradient is None else [(left, gradient)]
        roots = [(root, upstream) for root, upstream in roots if root.requires_grad]
        if roots:
            torch.autograd.backward([root for root, _ in roots], [upstream for _, upstream in roots])
        if entering is None:
            return None
        return torch.zeros_like(entering) if entering.grad is None else entering.grad

    def _empty(self, batch: Batch, parts: int) -> Tensor:
        """A buffer for the states of this rank's tokens: 1/`parts` of every row."""
        rows, length = batch.tokens.shape
        return torch.empty(rows, length // parts, self.model.config.width, dtype=self.dtype, device=self.device)

    def _add_ends(self) -> None:
        """Add the gradients of the embedding that both ends hold; a + b = b + a, so that both get the same bits."""
        if not self.model.ends_share or self.rank not in (0, self.ranks - 1):
            return
        weight = self.model.embedding.weight
        if weight.requires_grad:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            own = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad
            own += self.transfers.swap(self.ranks - 1 - self.rank, own)


class Transfers:
    """Sends and receives between the ranks of a pipeline. Exchanges complete in the order in which they were started."""

    def __init__(self, layout: Layout, stages: int) -> None:
        self.rank, self.ranks, self.stages = layout.rank("pipeline"), layout.size("pipeline"), stages
        self.group = layout.mesh["pipeline"].get_group()
        # by the pass that takes it: a buffer, and the exchange that fills it
        self.coming: dict[Action, tuple[Tensor, int]] = {}
        # by exchange: its tensors are held until it is complete
        self.flying: dict[int, tuple[list[distributed.Work], list[Tensor]]] = {}
        self.started = 0

    def take(self, action: Action) -> Tensor | None:
        """The tensor that was sent for this pass; None if it takes nothing from another rank."""
        if action not in self.coming:
            return None
        tensor, exchange = self.coming.pop(action)
        self.wait(exchange)
        return tensor

    def exchange(self, slot: Sequence[Action | None], made: Tensor | None, empty: Callable[[int], Tensor]) -> None:
        """Send what this rank made in a slot, and receive into buffers (`empty(micro)`) what others made for it."""
        operations = []
        for rank, action in enumerate(slot):
            target = None if action is None else action.feeds(self.stages)
            if target is not None and rank == self.rank:
                assert made is not None
                operations.append(self._operation(distributed.isend, made.contiguous(), target.stage))
            elif target is not None and target.stage % self.ranks == self.rank:
                buffer = empty(target.micro)
                self.coming[target] = buffer, self.started
                operations.append(self._operation(distributed.irecv, buffer, rank))
        self._start(*operations)

    def send(self, stage: int, x: Tensor) -> None:
        """To the rank of a stage."""
        self._start(self._operation(distributed.isend, x.contiguous(), stage))

    def receive(self, stage: int, buffer: Tensor) -> Tensor:
        """From the rank of a stage, into `buffer`."""
        self._start(self._operation(distributed.irecv, buffer, stage))
        self.wait()
        return buffer

    def swap(self, rank: int, tensor: Tensor) -> Tensor:
        """The tensor of another rank that calls this at the same time."""
        tensor, other = tensor.contiguous(), torch.empty_like(tensor, memory_format=torch.contiguous_format)
        sent, received = ((distributed.isend, tensor), (distributed.irecv, other))
        self._start(self._operation(*sent, rank), self._operation(*received, rank))
        self.wait()
        return other

    def wait(self, exchange: int | None = None) -> None:
        """Wait until this exchange and all before it are complete; on a GPU only its stream waits."""
        for number in [number for number in self.flying if exchange is None or number <= exchange]:
            works, _ = self.flying.pop(number)
            for work in works:
                work.wait()

    def _operation(self, kind: Any, tensor: Tensor, stage: int) -> distributed.P2POp:
        return distributed.P2POp(kind, tensor, distributed.get_global_rank(self.group, stage % self.ranks), self.group)

    def _start(self, *operations: distributed.P2POp) -> None:
        if operations:
            works = distributed.batch_isend_irecv(list(operations))
            self.flying[self.started] = works, [operation.tensor for operation in operations]
        self.started += 1
