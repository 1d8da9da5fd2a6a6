"""Log-probabilities of the scored tokens of a batch, computed in chunks, without logits for the other tokens.

log p(target) = logit(target) − logsumexp(logits), in float32. Only positions that some stream scores reach the head (in
SFT that is half of them); they pass through it in chunks. Two ways:

* with `token_factors` (token_factors.py), where the loss is a known sum over tokens: fused with its gradient (fused_head.py);
* without: the chunks' logits are recomputed in the backward pass, so that any function of the log-probabilities can be
  differentiated (policy gradients, preferences; fused_head.py, too), and what terms measure of whole distributions (KL to a
  teacher, entropy). A single chunk is kept instead.

Either way memory does not grow with tokens × vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from ingot.model.context_parallel import ContextParallel
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.metadata import whole_rows
from ingot.train.losses.fused_head import linear_cross_entropy, linear_logprobs
from ingot.train.losses.terms import NOTHING_MORE, Ahead, Distributions, Scored, Wants
from ingot.train.losses.token_factors import TokenFactors
from ingot.train.parallel.context import split

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
    wants: Wants = NOTHING_MORE,
    token_factors: TokenFactors | None = None,
    context_parallel: ContextParallel | None = None,
) -> Scored:
    """Run the model over a batch and return the scored tokens' log-probabilities with their streams.

    A `record` collects the parts' losses and the routers' loads; only a training step asks for them. `wants` says what
    further fields of Scored some term of the loss reads. With `context_parallel` only this rank's tokens are scored.
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
    wants: Wants = NOTHING_MORE,
    token_factors: TokenFactors | None = None,
    context_parallel: ContextParallel | None = None,
) -> Scored:
    """The second part of `score`, which starts from the states after the last norm."""
    ahead = _ahead_states(model, states, batch, record, context_parallel) if wants.ahead else []
    batch = split(batch, context_parallel)
    picked = Picked(batch)
    streams = {name: picked.pick(stream) for name, stream in batch.streams.items()}
    chosen, targets = picked.pick(states), picked.pick(batch.targets)
    rows = None if batch.sources is None else picked.rows(targets)
    if token_factors is None:
        vectors = {name: picked.pick(vector) for name, vector in batch.vectors.items()}
        if wants.neighbours:
            alone = _head(model, chosen, targets, temperature)["logprobs"]
            vectors |= {name: more for gather in wants.neighbours for name, more in gather(alone, streams).items()}
        found = _head(model, chosen, targets, temperature, wants, streams, vectors)
        logprobs, normalisers = found.pop("logprobs"), found.pop("log_normalisers", None)
        steps = tuple(Ahead(_head(model, s, t)["logprobs"], w) for s, t, w in ahead)
        heads = {name: model.read_head(name, chosen) for name in wants.heads}
        return Scored(logprobs, streams, normalisers, steps, rows, heads=heads, measured=found)
    scale, softcap = model.config.logit_scale, model.config.logit_softcap
    weight, exact = model.head_weight_VD, torch.promote_types(states.dtype, torch.float32)
    a, b = token_factors.factors(streams, exact)
    copy = model.head_part.weight_copy
    loss, logprobs, log_normalisers = linear_cross_entropy(chosen, weight, targets, a, b, scale, softcap, copy)
    listed = []
    for further, further_targets, weights in ahead:
        factor = token_factors.ahead(weights, len(ahead), exact)
        further_loss, further_logprobs, _ = linear_cross_entropy(
            further, weight, further_targets, factor, None, scale, softcap, copy
        )
        loss = loss + further_loss
        listed.append(Ahead(further_logprobs, weights))
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


def _head(
    model: Transformer,
    states: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    wants: Wants = NOTHING_MORE,
    streams: Mapping[str, Tensor] | None = None,
    vectors: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """`logprobs` of the targets, `log_normalisers` if they are wanted, and what is measured; [n] each."""
    weight, scale, softcap = model.head_weight_VD, model.config.logit_scale, model.config.logit_softcap
    chunk = max(1, CHUNK_LOGITS // weight.shape[0])
    alone = not wants.log_normalisers and not wants.measures and not isinstance(weight, DTensor)
    if alone and len(targets) > chunk and (softcap is None or temperature == 1.0):
        return {"logprobs": linear_logprobs(states, weight, targets, scale / temperature, softcap)}
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}  # nothing in it is random
    done = []
    for start in range(0, max(1, len(targets)), chunk):
        part = slice(start, start + chunk)
        numbers = {name: stream[part] for name, stream in (streams or {}).items()}
        lists = {name: vector[part] for name, vector in (vectors or {}).items()}
        arguments = model, states[part], targets[part], temperature, wants, numbers, lists
        if len(targets) <= chunk:
            return _head_chunk(*arguments)
        done.append(checkpoint(_head_chunk, *arguments, **options))
    return {name: torch.cat([each[name] for each in done]) for name in done[0]}


def _head_chunk(
    model: Transformer,
    states: Tensor,
    targets: Tensor,
    temperature: float,
    wants: Wants,
    streams: Mapping[str, Tensor],
    vectors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    logits = model.head(states)
    scaled = logits if temperature == 1.0 else logits / temperature
    found = {"logprobs": -cross_entropy(scaled, targets, reduction="none")}
    if wants.log_normalisers:
        found["log_normalisers"] = logits.logsumexp(dim=-1)
    for measure in wants.measures:
        found |= measure(Distributions(scaled, targets, streams, vectors, temperature))
    return found
