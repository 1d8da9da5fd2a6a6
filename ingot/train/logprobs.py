"""Log-probabilities of the scored tokens of a batch, without logits for the others and never all at once.

log p(target) = logit(target) − logsumexp(logits), in float32. Only positions that some stream scores reach the head (in
SFT that is half of them); they pass through it in chunks whose logits are recomputed in the backward pass, so memory does
not grow with tokens × vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from ingot.model.record import Record
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.terms import Ahead, Scored

CHUNK_LOGITS = 1 << 26  # logits held at once: 256 MiB in float32


def scored_positions(batch: Batch) -> Tensor:
    """True where any stream is not zero [rows, length]."""
    return torch.stack([stream != 0 for stream in batch.streams.values()]).any(dim=0)


def score(
    model: Transformer,
    batch: Batch,
    temperature: float = 1.0,
    record: Record | None = None,
    wants: Collection[str] = (),
) -> Scored:
    """Run the model over a batch and return the scored tokens' log-probabilities with their streams.

    A `record` collects the parts' losses and the routers' loads; only a training step asks for them. `wants` names the
    further fields of Scored that some term of the loss reads.
    """
    positions = scored_positions(batch)
    states = model.hidden(batch.tokens, batch.positions, batch.documents, record=record)
    scores = _head(model, states[positions], batch.targets[positions], temperature, "log_normalisers" in wants)
    return Scored(
        scores[0],
        {name: stream[positions] for name, stream in batch.streams.items()},
        log_normalisers=scores[1] if "log_normalisers" in wants else None,
        ahead=_ahead(model, states, batch, record) if "ahead" in wants else (),
    )


def _ahead(model: Transformer, states: Tensor, batch: Batch, record: Record | None) -> tuple[Ahead, ...]:
    """Every step of multi-token prediction: step k at position t predicts what position t + k predicts."""
    assert model.multi_token is not None
    steps = []
    passed = model.multi_token(states, batch.tokens, batch.positions, batch.documents, model.embed, record)
    for number, (further, valid) in enumerate(passed, 1):
        weights = torch.where(valid, torch.roll(batch.streams["weight"], -number, dims=1), 0)
        chosen, targets = weights != 0, torch.roll(batch.targets, -number, dims=1)
        logprobs = _head(model, further[chosen], targets[chosen], 1.0, False)[0]
        steps.append(Ahead(logprobs, weights[chosen]))
    return tuple(steps)


def _head(model: Transformer, states: Tensor, targets: Tensor, temperature: float, normalisers: bool) -> list[Tensor]:
    """[log-probabilities], or [log-probabilities, log-normalisers], of the targets."""
    chunk = max(1, CHUNK_LOGITS // model.head_weight_VD.shape[0])
    if len(targets) <= chunk:
        return _head_chunk(model, states, targets, temperature, normalisers)
    parts = zip(states.split(chunk), targets.split(chunk), strict=True)
    done = [checkpoint(_head_chunk, model, s, t, temperature, normalisers, use_reentrant=False) for s, t in parts]
    return [torch.cat(each) for each in zip(*done, strict=True)]


def _head_chunk(
    model: Transformer, states: Tensor, targets: Tensor, temperature: float, normalisers: bool
) -> list[Tensor]:
    logits = model.head(states)
    logprobs = -cross_entropy(logits if temperature == 1.0 else logits / temperature, targets, reduction="none")
    return [logprobs, logits.logsumexp(dim=-1)] if normalisers else [logprobs]
