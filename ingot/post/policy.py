"""What post-training needs of a model: its chat format, and the log-probabilities it gives to finished sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.processes import ALONE, Processes
from ingot.post.resumable import Resumable
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat
from ingot.tokens.packing import make_batch
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.batches import split_rows
from ingot.train.logprobs import score
from ingot.train.prepare import uncompiled
from ingot.train.terms import NOTHING_MORE, Distributions, Scored, Wants
from ingot.workspace.errors import ArtifactError

ROWS = 16
PLACES = 1 << 24
"""Numbers that float32, the dtype of streams, tells apart."""


def chat_format(model: Transformer) -> ChatFormat:
    """The chat format of the model's tokenizer."""
    return ChatFormat(chat_tokenizer(model))


def chat_tokenizer(model: Transformer) -> Tokenizer:
    """The model's tokenizer, which must be there."""
    if model.tokenizer is None:
        raise ArtifactError(
            "the checkpoint has no tokenizer", fix="use a checkpoint that Ingot wrote, or import one with it"
        )
    return model.tokenizer


def sequence_logprobs(
    model: Transformer,
    sequences: Sequence[TokenSequence],
    capacity: int,
    temperature: float = 1.0,
    processes: Processes = ALONE,
    saved: Resumable[list[float]] | None = None,
) -> list[list[float]]:
    """log p of every token given those before it; the first token of a sequence has none and gets 0.

    The model is whole. Each of several processes scores a part of the sequences, and all get all results. What is `saved` is not
    computed again.
    """

    def score_run(run: slice, between: Between) -> list[list[float]]:
        parts = countable(sequences[run])
        return [row for part in parts for row in _scored(model, part, capacity, [_logprobs], between, temperature)[0]]

    return processes.share(len(sequences), score_run, saved)


def logprobs_and_entropies(
    model: Transformer,
    sequences: Sequence[TokenSequence],
    capacity: int,
    temperature: float = 1.0,
    processes: Processes = ALONE,
) -> tuple[list[list[float]], list[list[float]]]:
    """`sequence_logprobs`, and from the same pass −Σ_v p_v log p_v of the distribution that each token was drawn from."""
    wants = Wants(measures=(_entropy,))

    def entropies(scored: Scored) -> Tensor:
        return scored.measured["entropy"]

    def score_run(run: slice, between: Between) -> list[tuple[list[float], list[float]]]:
        made: list[tuple[list[float], list[float]]] = []
        for part in countable(sequences[run]):
            columns = _scored(model, part, capacity, [_logprobs, entropies], between, temperature, wants)
            made += zip(*columns, strict=True)
        return made

    rows = processes.share(len(sequences), score_run)
    return [logprobs for logprobs, _ in rows], [entropy for _, entropy in rows]


def _logprobs(scored: Scored) -> Tensor:
    return scored.logprobs


def _entropy(tokens: Distributions) -> dict[str, Tensor]:
    logprobs = tokens.logits.log_softmax(dim=-1)
    return {"entropy": -(logprobs.exp() * logprobs).nan_to_num(nan=0.0).sum(dim=-1)}  # 0 · log 0 = 0


def head_values(
    model: Transformer,
    head: str,
    sequences: Sequence[TokenSequence],
    capacity: int,
    processes: Processes = ALONE,
) -> list[list[float]]:
    """What a further head of the model gives before every token: read where the token is predicted."""
    wants = Wants(heads=(head,))

    def numbers(scored: Scored) -> Tensor:
        return scored.heads[head]

    def score_run(run: slice, between: Between) -> list[list[float]]:
        parts = countable(sequences[run])
        return [row for part in parts for row in _scored(model, part, capacity, [numbers], between, wants=wants)[0]]

    return processes.share(len(sequences), score_run)


def countable(sequences: Sequence[TokenSequence]) -> Iterator[list[TokenSequence]]:
    """The sequences in parts of fewer than PLACES tokens."""
    part, total = list[TokenSequence](), 0
    for sequence in sequences:
        if part and total + len(sequence.tokens) >= PLACES:
            yield part
            part, total = [], 0
        part.append(sequence)
        total += len(sequence.tokens)
    if part:
        yield part


@torch.no_grad()
def _scored(
    model: Transformer,
    sequences: Sequence[TokenSequence],
    capacity: int,
    numbers: Sequence[Callable[[Scored], Tensor]],
    between: Between,
    temperature: float = 1.0,
    wants: Wants = NOTHING_MORE,
) -> list[list[list[float]]]:
    """Each of the `numbers` for every token of every sequence.

    A token is stamped with its index among all tokens, so that its number is found in whatever row it was scored. Each time there
    are other numbers of rows and documents: compiled code would be made anew for them.
    """
    starts, total = [], 1  # places are numbered from 1: a stream value of 0 means "not scored"
    for sequence in sequences:
        starts.append(total)
        total += len(sequence.tokens)
    numbered = [
        TokenSequence(sequence.tokens, {"place": [float(start + i) for i in range(len(sequence.tokens))]})
        for sequence, start in zip(sequences, starts, strict=True)
    ]
    values = [torch.zeros(total, dtype=torch.float32) for _ in numbers]
    with uncompiled(model):
        for batch in split_rows(make_batch(numbered, capacity), ROWS):
            between()
            scored = score(model, batch.to(model.embedding.weight.device), temperature, wants=wants)
            places = scored.streams["place"].long().cpu()
            for column, number in zip(values, numbers, strict=True):
                column[places] = number(scored).float().cpu()
    spans = [(start, start + len(sequence.tokens)) for sequence, start in zip(sequences, starts, strict=True)]
    return [[[0.0, *column[start + 1 : end].tolist()][: end - start] for start, end in spans] for column in values]
