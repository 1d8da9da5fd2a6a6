"""Log-probabilities of the scored tokens of a batch, computed in chunks, without logits for the other tokens.

log p(target) = logit(target) − logsumexp(logits), in float32. Only positions that some stream scores reach the head (in
SFT that is half of them); they pass through it in chunks. Two ways:

* with `token_factors` (token_factors.py), where the loss is a known sum over tokens: fused with its gradient (fused_head.py);
* without: the chunks' logits are recomputed in the backward pass, so that any function of the log-probabilities can be
  differentiated (policy gradients, preferences).

Either way memory does not grow with tokens × vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from ingot.model.context_parallel import ContextParallel
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.metadata import whole_rows
from ingot.train.fused_head import linear_cross_entropy
from ingot.train.parallel.context import split
from ingot.train.terms import Ahead, Scored
from ingot.train.token_factors import TokenFactors

CHUNK_LOGITS = 1 << 26  # logits held at once: 256 MiB in float32


def scored_positions(batch: Batch) -> Tensor:
    """True where any stream is not zero [rows, length]."""
    return torch.stack([stream != 0 for stream in batch.streams.values()]).any(dim=0)


class Picked:
    """The positions of a batch that are scored: `pick(x)` takes them out of a tensor [rows, length, …]."""

    def __init__(self, batch: Batch) -> None:
        self.length = batch.tokens.shape[1]
        if batch.metadata is None:
            self.index: Tensor | None = scored_positions(batch).flatten().nonzero().flatten()
        else:
            self.index = batch.metadata.scored
        self.count = batch.tokens.numel()

    def pick(self, x: Tensor) -> Tensor:
        """[n, …]"""
        flat = x.flatten(0, 1)
        return flat if self.index is None else flat[self.index]

    def rows(self, like: Tensor) -> Tensor:
        """The row of each picked position [n]."""
        index = torch.arange(self.count, device=like.device) if self.index is None else self.index
        return index // self.length


def score(
    model: Transformer,
    batch: Batch,
    temperature: float = 1.0,
    record: Record | None = None,
    wants: Collection[str] = (),
    token_factors: TokenFactors | None = None,
    context_parallel: ContextParallel | None = None,
) -> Scored:
    """Run the model over a batch and return the scored tokens' log-probabilities with their streams.

    A `record` collects the parts' losses and the routers' loads; only a training step asks for them. `wants` names the
    further fields of Scored that some term of the loss reads. With `context_parallel` only this rank's tokens are scored.
    """
    states = run_model(model, batch, record, context_parallel)
    return score_states(model, states, batch, temperature, record, wants, token_factors, context_parallel)


def run_model(
    model: Transformer,
    batch: Batch,
    record: Record | None = None,
    context_parallel: ContextParallel | None = None,
    **stage: Any,
) -> Tensor:
    """The states of a batch; `stage` is what one stage of a pipeline needs besides (parallel/pipeline.py)."""
    known = batch.metadata is not None or batch.tokens.device.type == "cpu"  # without waiting for a GPU
    documents = None if known and whole_rows(batch) else batch.documents
    if batch.metadata is not None:
        torch._dynamo.maybe_mark_dynamic(batch.metadata.starts, 0)  # no new code for every number of documents
    given = {"record": record, "metadata": batch.metadata, "context_parallel": context_parallel, **stage}
    return model.hidden(batch.tokens, batch.positions, documents, **given)


def score_states(
    model: Transformer,
    states: Tensor,
    batch: Batch,
    temperature: float = 1.0,
    record: Record | None = None,
    wants: Collection[str] = (),
    token_factors: TokenFactors | None = None,
    context_parallel: ContextParallel | None = None,
) -> Scored:
    """The second part of `score`, which starts from the states after the last norm."""
    ahead = _ahead_states(model, states, batch, record, context_parallel) if "ahead" in wants else []
    batch = split(batch, context_parallel)
    picked = Picked(batch)
    streams = {name: picked.pick(stream) for name, stream in batch.streams.items()}
    chosen, targets = picked.pick(states), picked.pick(batch.targets)
    rows = None if batch.sources is None else picked.rows(targets)
    if token_factors is None:
        scores = _head(model, chosen, targets, temperature, "log_normalisers" in wants)
        normalisers = scores[1] if "log_normalisers" in wants else None
        steps = tuple(Ahead(_head(model, s, t, 1.0, False)[0], w) for s, t, w in ahead)
        return Scored(scores[0], streams, normalisers, steps, rows)
    scale, softcap = model.config.logit_scale, model.config.logit_softcap
    weight, exact = model.head_weight_VD, torch.promote_types(states.dtype, torch.float32)
    a, b = token_factors.factors(streams, exact)
    copy = model.head_part.weight_copy
    loss, logprobs, log_normalisers = linear_cross_entropy(chosen, weight, targets, a, b, scale, softcap, copy)
    listed = []
    for further, further_targets, weights in ahead:
        factor = token_factors.ahead(weights, len(ahead), exact)
        found = linear_cross_entropy(further, weight, further_targets, factor, None, scale, softcap, copy)
        loss = loss + found[0]
        listed.append(Ahead(found[1], weights))
    return Scored(logprobs, streams, log_normalisers, tuple(listed), rows, loss)


def _ahead_states(
    model: Transformer, states: Tensor, batch: Batch, record: Record | None, context_parallel: ContextParallel | None
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """States, targets and weights of every step of multi-token prediction: step k at t predicts what t + k predicts."""
    assert model.multi_token is not None
    steps = []
    passed = model.multi_token(
        states, batch.tokens, batch.positions, batch.documents, model.embed, record, context_parallel
    )
    for number, (further, valid) in enumerate(passed, 1):
        weights, targets = (
            torch.roll(batch.streams["weight"], -number, dims=1),
            torch.roll(batch.targets, -number, dims=1),
        )
        if context_parallel is not None:
            weights, targets = context_parallel.own(weights), context_parallel.own(targets)
        weights = torch.where(valid, weights, 0)
        if batch.metadata is None:
            chosen = weights != 0
            steps.append((further[chosen], targets[chosen], weights[chosen]))
        else:  # taking all is cheaper than asking the device which
            steps.append((further.flatten(0, 1), targets.flatten(), weights.flatten()))
    return steps


def _head(model: Transformer, states: Tensor, targets: Tensor, temperature: float, normalisers: bool) -> list[Tensor]:
    """[log-probabilities], or [log-probabilities, log-normalisers], of the targets."""
    chunk = max(1, CHUNK_LOGITS // model.head_weight_VD.shape[0])
    if len(targets) <= chunk:
        return _head_chunk(model, states, targets, temperature, normalisers)
    parts = zip(states.split(chunk), targets.split(chunk), strict=True)
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # nothing in it is random
    done = [checkpoint(_head_chunk, model, s, t, temperature, normalisers, **options) for s, t in parts]
    return [torch.cat(each) for each in zip(*done, strict=True)]


def _head_chunk(
    model: Transformer, states: Tensor, targets: Tensor, temperature: float, normalisers: bool
) -> list[Tensor]:
    logits = model.head(states)
    logprobs = -cross_entropy(logits if temperature == 1.0 else logits / temperature, targets, reduction="none")
    return [logprobs, logits.logsumexp(dim=-1)] if normalisers else [logprobs]
