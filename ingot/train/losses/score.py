"""Runs the head over the scored tokens of a batch: their log-probabilities, and the loss with its gradient where it is fused.

log p(target) = logit(target) − logsumexp(logits), in float32. Only positions that some stream scores reach the head (in SFT
that is half of them). From what is asked of them `run_head` decides, for every loss, how they pass through it:

    fused         loss and gradient at once, a chunk of tokens at a time: three products (fused_head.py); for a loss with factors
                  that are known before the pass
    kept          log-probabilities, log Z and what terms measure; the logits are kept: no more tokens than a chunk
    recomputed    log-probabilities alone, for any function of them (policy gradients, preferences); a chunk's logits are made
                  again in the backward pass: four products (fused_head.py)
    checkpointed  the rest, by autograd: what terms measure of distributions (KL to a teacher, entropy), log Z, a divided head

In none of them does memory grow with tokens × vocabulary. Known factors a and b are those of

    loss = Σ_t a_t log p_t + b_t (log Z_t)²  +  the steps ahead,        a = Σ_terms coefficient · factor / denominator

Cross-entropy, z-loss and multi-token prediction are such sums; a policy gradient is not: what multiplies its log-probabilities
depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from ingot.model.context_parallel import ContextParallel
from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.metadata import is_scored, whole_rows
from ingot.train.losses.fused_head import linear_cross_entropy, linear_logprobs
from ingot.train.losses.terms import NOTHING_MORE, Ahead, Distributions, LossTerm, Scored, Wants
from ingot.train.parallel.context import split
from ingot.train.parallel.vocabulary import divided_cross_entropy

CHUNK_LOGITS = 1 << 26  # logits held at once: 256 MiB in float32


class KnownFactors(NamedTuple):
    """a and b of each token, b None where no term has log Z in it; and a copy of the head's weight to multiply with."""

    a: Tensor
    b: Tensor | None
    head_copy: Tensor | None


@dataclass(frozen=True)
class StepTerms:
    """The terms of a training step with what divides their sums over the whole step; a measurement has none."""

    terms: Sequence[LossTerm]
    denominators: Mapping[str, Tensor]
    head_copy: Tensor | None = None  # of the head's weight, in the dtype of the products (bf16_copies.py)

    def factors(self, streams: Mapping[str, Tensor], dtype: torch.dtype) -> KnownFactors:
        """Those of the tokens with these streams, for states of this dtype."""
        exact = torch.promote_types(dtype, torch.float32)
        a: Tensor | None = None
        b: Tensor | None = None
        for term in self.terms:
            factors = term.factors(streams)
            assert factors is not None
            if factors.logprob is not None:
                scaled = factors.logprob.to(exact) * self._scale(term)
                a = scaled if a is None else a + scaled
            if factors.normaliser is not None:
                scaled = factors.normaliser.to(exact) * self._scale(term)
                b = scaled if b is None else b + scaled
        if a is None:
            a = torch.zeros_like(next(iter(streams.values())), dtype=exact)
        return KnownFactors(a, b, self.head_copy)

    def factors_ahead(self, weights: Tensor, steps: int, dtype: torch.dtype) -> KnownFactors:
        """Those of the tokens of one of `steps` steps ahead, whose weights these are."""
        exact = torch.promote_types(dtype, torch.float32)
        total = torch.zeros((), dtype=exact, device=weights.device)
        for term in self.terms:
            factors = term.factors({"weight": weights})
            assert factors is not None
            total = total + factors.ahead * self._scale(term)
        return KnownFactors(weights.to(exact) * total / steps, None, self.head_copy)

    def _scale(self, term: LossTerm) -> Tensor:
        return term.coefficient / self.denominators[term.name]


def has_known_factors(terms: Sequence[LossTerm], temperature: float) -> bool:
    """Whether the factors of a loss of these terms are known before the pass."""
    return temperature == 1.0 and all(type(term).factors is not LossTerm.factors for term in terms)


class Picked:
    """The positions of a batch that are scored: `pick(x)` takes them out of a tensor [rows, length, …]."""

    def __init__(self, batch: Batch) -> None:
        self.length = batch.tokens.shape[1]
        if batch.metadata is None:
            self.index: Tensor | None = is_scored(batch).flatten().nonzero().flatten()
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
    step: StepTerms | None = None,
    context_parallel: ContextParallel | None = None,
) -> Scored:
    """Run the model over a batch and return the scored tokens' log-probabilities with their streams.

    A `record` collects the parts' losses and the routers' loads; only a training step asks for them. `wants` says what
    further fields of Scored some term of the loss reads; a training pass gives the terms of its `step`. With
    `context_parallel` only this rank's tokens are scored.
    """
    states = run_model(model, batch, record, context_parallel)
    return score_states(model, states, batch, temperature, record, wants, step, context_parallel)


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
    step: StepTerms | None = None,
    context_parallel: ContextParallel | None = None,
) -> Scored:
    """The second part of `score`, which starts from the states after the last norm."""
    ahead = _ahead_states(model, states, batch, record, context_parallel) if wants.ahead else []
    batch = split(batch, context_parallel)
    picked = Picked(batch)
    streams = {name: picked.pick(stream) for name, stream in batch.streams.items()}
    vectors = {name: picked.pick(vector) for name, vector in batch.vectors.items()}
    chosen, targets = picked.pick(states), picked.pick(batch.targets)
    if wants.neighbours:
        alone = run_head(model, chosen, targets, temperature).logprobs
        vectors |= {name: more for gather in wants.neighbours for name, more in gather(alone, streams).items()}
    known = step if step is not None and has_known_factors(step.terms, temperature) else None
    factors = None if known is None else known.factors(streams, states.dtype)
    found = run_head(model, chosen, targets, temperature, wants, streams, vectors, factors)
    steps, loss = list[Ahead](), found.loss
    for further, further_targets, weights in ahead:
        factors = None if known is None else known.factors_ahead(weights, len(ahead), states.dtype)
        one = run_head(model, further, further_targets, factors=factors)
        steps.append(Ahead(one.logprobs, weights))
        if loss is not None and one.loss is not None:
            loss = loss + one.loss
    rows = None if batch.sources is None else picked.rows(targets)
    heads = {name: model.read_head(name, chosen) for name in wants.heads}
    return replace(found, ahead=tuple(steps), rows=rows, loss=loss, heads=heads)


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


def run_head(
    model: Transformer,
    states: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    wants: Wants = NOTHING_MORE,
    streams: Mapping[str, Tensor] | None = None,
    vectors: Mapping[str, Tensor] | None = None,
    factors: KnownFactors | None = None,
) -> Scored:
    """Log-probabilities of the targets [n], with `factors` the loss, and what is wanted: in one of the four ways above."""
    weight, scale, softcap = model.head_weight_VD, model.config.logit_scale, model.config.logit_softcap
    streams, vectors = streams or {}, vectors or {}
    if factors is not None:
        given = targets, factors.a, factors.b, scale, softcap
        if isinstance(weight, DTensor):
            loss, logprobs, normalisers = divided_cross_entropy(states, weight, *given)
        else:
            loss, logprobs, normalisers = linear_cross_entropy(states, weight, *given, factors.head_copy)
        return Scored(logprobs, streams, normalisers, loss=loss)
    chunk = max(1, CHUNK_LOGITS // weight.shape[0])
    tempered_cap = softcap is not None and temperature != 1.0  # the temperature is no scale of what enters the cap
    if len(targets) <= chunk:
        found = _measure(model, states, targets, temperature, wants, streams, vectors)
    elif not (wants.log_normalisers or wants.measures or tempered_cap or isinstance(weight, DTensor)):
        found = {"logprobs": linear_logprobs(states, weight, targets, scale / temperature, softcap)}
    else:
        parts = []
        for start in range(0, len(targets), chunk):
            part = slice(start, start + chunk)
            numbers, lists = ({name: each[part] for name, each in named.items()} for named in (streams, vectors))
            one = model, states[part], targets[part], temperature, wants, numbers, lists
            parts.append(checkpoint(_measure, *one, use_reentrant=False, preserve_rng_state=False))  # nothing is random
        found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return Scored(found.pop("logprobs"), streams, found.pop("log_normalisers", None), measured=found)


def _measure(
    model: Transformer,
    states: Tensor,
    targets: Tensor,
    temperature: float,
    wants: Wants,
    streams: Mapping[str, Tensor],
    vectors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Log-probabilities, log Z if it is wanted, and what the terms measure; [n] each."""
    logits = model.head(states)
    scaled = logits if temperature == 1.0 else logits / temperature
    found = {"logprobs": -cross_entropy(scaled, targets, reduction="none")}
    if wants.log_normalisers:
        found["log_normalisers"] = logits.logsumexp(dim=-1)
    for measure in wants.measures:
        found |= measure(Distributions(scaled, targets, streams, vectors, temperature))
    return found
