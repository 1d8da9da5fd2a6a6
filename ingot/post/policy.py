"""What post-training needs of a model: its chat format, and the log-probabilities it gives to finished sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.processes import ALONE, Processes
from ingot.post.resumable import Resumable
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.chat import ChatFormat
from ingot.tokens.packing import make_batch
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.batches import split_rows
from ingot.train.losses.score import score
from ingot.train.losses.terms import NOTHING_MORE, Scored, Wants
from ingot.train.prepare import uncompiled
from ingot.workspace.errors import ArtifactError

ROWS = 16
PLACES = 1 << 24
"""Numbers that float32, the dtype of streams, tells apart."""

Number = Callable[[Scored], Tensor]
"""What is read of every scored token of a pass."""


def of_logprobs(scored: Scored) -> Tensor:
    """log p."""
    return scored.logprobs


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
        return [row for part in parts for row in _scored(model, part, capacity, [of_logprobs], between, temperature)[0]]

    return processes.share(len(sequences), score_run, saved)


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


class Numbered:
    """Sequences whose tokens are stamped with their index among all tokens, so that a token's number is found in any row.

    Places count from 1: a stream value of 0 means "not scored".
    """

    def __init__(self, sequences: Sequence[TokenSequence]) -> None:
        self.ends = list(accumulate((len(each.tokens) for each in sequences), initial=1))
        spans = zip(sequences, self.ends[:-1], strict=True)
        self.sequences = [
            TokenSequence(each.tokens, {"place": [float(start + i) for i in range(len(each.tokens))]})
            for each, start in spans
        ]

    def batches(self, capacity: int) -> list[Batch]:
        """All of them, packed."""
        return split_rows(make_batch(self.sequences, capacity), ROWS)

    def column(self) -> Tensor:
        """A number for every place, 0 so far."""
        return torch.zeros(self.ends[-1])

    def rows(self, column: Tensor) -> list[list[float]]:
        """The numbers of each sequence; its first token has none and gets 0."""
        return [[0.0, *column[start + 1 : end].tolist()][: end - start] for start, end in pairwise(self.ends)]


def fill(columns: Sequence[Tensor], numbers: Sequence[Number], scored: Scored) -> None:
    """Put the numbers of the tokens of one pass into their places."""
    places = scored.streams["place"].long().to(columns[0].device)
    if len(places):
        for column, number in zip(columns, numbers, strict=True):
            column[places] = number(scored).float().to(column.device)


@torch.no_grad()
def _scored(
    model: Transformer,
    sequences: Sequence[TokenSequence],
    capacity: int,
    numbers: Sequence[Number],
    between: Between,
    temperature: float = 1.0,
    wants: Wants = NOTHING_MORE,
) -> list[list[list[float]]]:
    """Each of the `numbers` for every token of every sequence, by a whole model.

    Each time there are other numbers of rows and documents: compiled code would be made anew for them.
    """
    numbered = Numbered(sequences)
    columns = [numbered.column() for _ in numbers]
    with uncompiled(model):
        for batch in numbered.batches(capacity):
            between()
            here = batch.to(model.embedding.weight.device)
            fill(columns, numbers, score(model, here, temperature, wants=wants))
    return [numbered.rows(column) for column in columns]
