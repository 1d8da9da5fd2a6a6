"""Log-probabilities of the scored tokens of a batch, without logits for the others and never all at once.

log p(target) = logit(target) − logsumexp(logits), in float32. Only positions that some stream scores reach the head (in
SFT that is half of them); they pass through it in chunks whose logits are recomputed in the backward pass, so memory does
not grow with tokens × vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.train.terms import Scored

CHUNK_LOGITS = 1 << 26  # logits held at once: 256 MiB in float32


def scored_positions(batch: Batch) -> Tensor:
    """True where any stream is not zero [rows, length]."""
    return torch.stack([stream != 0 for stream in batch.streams.values()]).any(dim=0)


def score(model: Transformer, batch: Batch, temperature: float = 1.0) -> Scored:
    """Run the model over a batch and return the scored tokens' log-probabilities with their streams."""
    positions = scored_positions(batch)
    states = model.hidden(batch.tokens, batch.positions, batch.documents)[positions]
    targets = batch.targets[positions]
    chunk = max(1, CHUNK_LOGITS // model.head_weight_VD.shape[0])
    if len(targets) <= chunk:
        logprobs = _logprobs(model, states, targets, temperature)
    else:
        parts = zip(states.split(chunk), targets.split(chunk), strict=True)
        logprobs = torch.cat([checkpoint(_logprobs, model, s, t, temperature, use_reentrant=False) for s, t in parts])
    return Scored(logprobs, {name: stream[positions] for name, stream in batch.streams.items()})


def _logprobs(model: Transformer, states: Tensor, targets: Tensor, temperature: float) -> Tensor:
    logits = model.head(states)
    return -cross_entropy(logits if temperature == 1.0 else logits / temperature, targets, reduction="none")
