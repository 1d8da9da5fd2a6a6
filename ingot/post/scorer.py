"""What the policy, or a frozen model beside it, says of finished sequences: log-probabilities, entropies, values.

    a whole model      each process scores a run of the sequences
    a divided one      the rows of a pass are dealt to the ranks as those of a training step are, and all ranks make the same
                       number of passes, because they exchange weights or states in each; ranks that share rows score different
                       tokens of them. The columns of all ranks are added up: a place that a rank did not score is 0 there

Passes are those of training (train/passes.py), in its precision, so that the policy scores as it is trained.
All processes call each method with the same sequences, and all get all results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.policy import Number, Numbered, countable, fill, of_logprobs
from ingot.post.processes import Processes
from ingot.tokens.batch import TokenSequence
from ingot.train.batches import deal
from ingot.train.losses.terms import NOTHING_MORE, Distributions, Scored, Wants
from ingot.train.parallel.layout import AXES, Layout
from ingot.train.passes import Passes
from ingot.train.prepare import uncompiled

Rows = list[list[float]]


class Scorer:
    """A model, its layout, and the longest row that sequences are packed into."""

    def __init__(self, passes: Passes, processes: Processes, capacity: int) -> None:
        self.passes, self.processes, self.capacity = passes, processes, capacity

    @property
    def model(self) -> Transformer:
        """What scores; in several processes this one's part of it."""
        return self.passes.model

    def logprobs(self, sequences: Sequence[TokenSequence], temperature: float) -> Rows:
        """log p of every token given those before it; the first token of a sequence has none and gets 0."""
        return self._columns(sequences, [of_logprobs], temperature)[0]

    def logprobs_and_entropies(self, sequences: Sequence[TokenSequence], temperature: float) -> tuple[Rows, Rows]:
        """The same, and from the same pass −Σ_v p_v log p_v of the distribution that each token was drawn from."""
        logprobs, entropies = self._columns(
            sequences, [of_logprobs, _of_entropies], temperature, Wants(measures=(_entropy,))
        )
        return logprobs, entropies

    def values(self, head: str, sequences: Sequence[TokenSequence]) -> Rows:
        """What a further head of the model gives before every token: read where the token is predicted."""

        def numbers(scored: Scored) -> Tensor:
            return scored.heads[head]

        return self._columns(sequences, [numbers], 1.0, Wants(heads=(head,)))[0]

    def _columns(
        self,
        sequences: Sequence[TokenSequence],
        numbers: Sequence[Number],
        temperature: float,
        wants: Wants = NOTHING_MORE,
    ) -> list[Rows]:
        """Each of the `numbers` for every token of every sequence."""
        layout = self.passes.layout

        def score_run(run: slice, between: Between) -> list[list[list[float]]]:
            made: list[list[list[float]]] = []  # of each sequence its rows, one of each number
            for part in countable(sequences[run]):
                columns = self._score(Numbered(part), numbers, temperature, wants, between, layout)
                made += map(list, zip(*columns, strict=True))
            return made

        if layout is None:
            rows = self.processes.share(len(sequences), score_run)
        else:
            rows = score_run(slice(len(sequences)), self.processes.alive)
        return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in numbers]

    @torch.no_grad()
    def _score(
        self,
        numbered: Numbered,
        numbers: Sequence[Number],
        temperature: float,
        wants: Wants,
        between: Callable[[], None],
        layout: Layout | None,
    ) -> list[Rows]:
        batches = numbered.batches(self.capacity)
        columns = [numbered.column() for _ in numbers]
        if layout is not None:
            batches = deal(batches, layout.data_rank, layout.data_world)
            columns = [each.to(self.passes.device) for each in columns]
        with uncompiled(self.model):  # each time there are other numbers of rows and documents
            for batch in batches:
                between()
                fill(columns, numbers, self.passes.score(batch, temperature, wants))
        for column in columns:
            if layout is not None:
                layout.sum_over(column, *AXES[:-1])  # tensor ranks have the same
        return [numbered.rows(column.cpu()) for column in columns]


def _of_entropies(scored: Scored) -> Tensor:
    return scored.measured["entropy"]


def _entropy(tokens: Distributions) -> dict[str, Tensor]:
    logprobs = tokens.logits.log_softmax(dim=-1)
    return {"entropy": -(logprobs.exp() * logprobs).nan_to_num(nan=0.0).sum(dim=-1)}  # 0 · log 0 = 0
