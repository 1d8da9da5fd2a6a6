"""The loss of a batch written out with torch alone, and gradients compared by name."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ingot.model.context_parallel import ContextParallel
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch

Results = tuple[float, dict[str, Any]]  # loss and gradients: tensors of a rank, arrays when they arrive here


def loss_of(
    model: Transformer,
    batch: Batch,
    rows: slice = slice(None),
    context_parallel: ContextParallel | None = None,
    record: Record | None = None,
) -> Tensor:
    """Σ w (−log p) / Σ w, also of multi-token prediction, + Σ losses of the parts / tokens.

    With `rows` or `context_parallel`: this rank's share of the batch's loss.
    """
    record = Record() if record is None else record
    weights, tokens, positions = batch.streams["weight"][rows], batch.tokens[rows], batch.positions[rows]
    documents, targets = batch.documents[rows], batch.targets[rows]
    states = model.hidden(tokens, positions, documents, record=record, context_parallel=context_parallel)
    loss = _share(model, states, targets, weights, context_parallel)
    if model.multi_token is not None:
        passed = model.multi_token(states, tokens, positions, documents, model.embed, record, context_parallel)
        for ahead, (further, valid) in enumerate(passed, 1):
            there = valid if context_parallel is None else context_parallel.gather(valid.float()).bool()
            moved = torch.roll(weights, -ahead, 1) * there
            loss = loss + _share(model, further, torch.roll(targets, -ahead, 1), moved, context_parallel)
    total = sum(record.losses.values(), torch.zeros(()))
    return loss / batch.streams["weight"].sum() + total / batch.token_count


def _share(
    model: Transformer, states: Tensor, targets: Tensor, weights: Tensor, context_parallel: ContextParallel | None
) -> Tensor:
    if context_parallel is not None:
        targets, weights = context_parallel.own(targets), context_parallel.own(weights)
    losses = cross_entropy(model.head(states).flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum()


def one_process(model: Transformer, batch: Batch) -> Results:
    """Loss and gradients of the undivided model."""
    loss = loss_of(model, batch)
    loss.backward()
    gradients = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return float(loss.detach()), {name: gradient.numpy() for name, gradient in gradients.items()}


def compare(expected: Results, ranks: list[Results], bound: float = 1e-6) -> float:
    """Every rank has the loss and all gradients, each within `bound` of its largest entry; returns the largest distance."""
    loss, gradients = expected
    worst = 0.0
    for rank, (own_loss, own) in enumerate(ranks):
        assert abs(own_loss - loss) < bound * max(1.0, abs(loss)), f"rank {rank}: loss {own_loss}, not {loss}"
        assert own.keys() == gradients.keys(), f"rank {rank}: {own.keys() ^ gradients.keys()}"
        for name, gradient in gradients.items():
            assert own[name].shape == gradient.shape, f"rank {rank}: {name} is {own[name].shape}"
            distance = float(numpy.abs(own[name] - gradient).max() / max(numpy.abs(gradient).max(), 1e-3))
            assert distance < bound, (
                f"rank {rank}: the gradient of {name} is off by {distance:.2e} of its largest entry"
            )
            worst = max(worst, distance)
    return worst
