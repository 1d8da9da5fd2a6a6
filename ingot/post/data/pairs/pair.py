"""Preference pairs: two answers to one prompt, and the training sequences that they become.

Pairs come from files (pair_file.py), from other models (model_pairs.py) or from the model's own answers: a better one against a
worse one to the same task. Answers whose lengths differ by more than a cap are not paired, so that "longer" cannot be learnt as
"better".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ingot.inference.checksum import weights_checksum
from ingot.model.transformer import Transformer
from ingot.post.data.conversations.sequences import PoolSource
from ingot.post.policy import sequence_logprobs
from ingot.post.processes import ALONE, Processes
from ingot.post.resumable import Resumable
from ingot.tokens.batch import TokenSequence
from ingot.workspace.config import content_hash
from ingot.workspace.stage import StageFolder

PIECE = 2048  # scored answers that are saved together


class Answer(Protocol):
    """A prompt with an answer: an episode of the policy, or what a file or another model says."""

    def tokens(self) -> list[int]:
        """The prompt and the answer."""

    def sampled(self) -> list[int]:
        """1 on the tokens that are compared, 0 on what was given; aligned with `tokens()`."""


@dataclass(frozen=True)
class FileAnswer:
    """An answer that the policy did not sample."""

    ids: list[int]
    marks: list[int]

    def tokens(self) -> list[int]:
        return self.ids

    def sampled(self) -> list[int]:
        return self.marks


Half = TypeVar("Half", bound=Answer, covariant=True)


@dataclass(frozen=True)
class Pair(Generic[Half]):
    """Two answers to one prompt."""

    chosen: Half
    rejected: Half


def answer_length(answer: Answer) -> int:
    """Tokens that are compared."""
    return sum(answer.sampled())


def within(pairs: Sequence[Pair[Half]], length_gap: int | None) -> list[Pair[Half]]:
    """The pairs whose answers differ by at most so many tokens."""
    if length_gap is None:
        return list(pairs)
    return [pair for pair in pairs if abs(answer_length(pair.chosen) - answer_length(pair.rejected)) <= length_gap]


def pair_sequences(
    pairs: Sequence[Pair[Answer]],
    reference: Transformer | None,
    capacity: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[list[TokenSequence]]:
    """For each pair its two sequences, marked by the streams `chosen` and `rejected` (1 on the compared tokens of one
    half, 0 in the other), with `weight` on those of the chosen half and `reference_logprob` on those of both.

    Without a reference there is no `reference_logprob`. Log-probabilities that the stage has saved in its `folder` are not
    computed again.
    """
    halves = [half for pair in pairs for half in (pair.chosen, pair.rejected)]
    marked = [mark(half, good=index % 2 == 0) for index, half in enumerate(halves)]
    if reference is not None:
        marked = with_reference(marked, reference, capacity, processes, folder)
    return [marked[index : index + 2] for index in range(0, len(marked), 2)]


def mark(answer: Answer, *, good: bool) -> TokenSequence:
    """An answer as a sequence with the streams `chosen`, `rejected` and `weight`."""
    marks = [float(one) for one in answer.sampled()]
    nothing = [0.0] * len(marks)
    streams = {"chosen": marks, "rejected": nothing} if good else {"chosen": nothing, "rejected": marks}
    return TokenSequence(answer.tokens(), {**streams, "weight": marks if good else nothing})


def with_reference(
    sequences: Sequence[TokenSequence],
    reference: Transformer,
    capacity: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
) -> list[TokenSequence]:
    """The marked sequences with `reference_logprob` on their answers."""
    texts = [TokenSequence(sequence.tokens) for sequence in sequences]
    saved = None
    if folder is not None:
        made_from = content_hash([weights_checksum(reference), capacity, [text.tokens for text in texts]], digits=24)
        saved = Resumable(folder.path / "reference", made_from, PIECE, list, _same, folder.progress.say)
    rows = sequence_logprobs(reference, texts, capacity, processes=processes, saved=saved)
    return [
        sequence.with_stream(
            "reference_logprob", [value * one for value, one in zip(row, answer_marks(sequence), strict=True)]
        )
        for sequence, row in zip(sequences, rows, strict=True)
    ]


def answer_marks(sequence: TokenSequence) -> list[float]:
    """1 on the answer of a marked sequence, whichever it is."""
    return [good + bad for good, bad in zip(sequence.streams["chosen"], sequence.streams["rejected"], strict=True)]


def _same(_: int, row: list[float]) -> list[float]:
    return row


class PairSource(PoolSource):
    """Steps of pairs. Within a step each pair has its own number in `chosen` and `rejected`, also one that comes twice:
    by a number of the pair itself its two copies would be added up as one longer pair."""

    noun = "pairs"

    def draw(self, step: int) -> list[Sequence[TokenSequence]]:
        return number_groups(super().draw(step))


def number_groups(groups: Sequence[Sequence[TokenSequence]]) -> list[Sequence[TokenSequence]]:
    """The groups of a step, numbered from 1 in the streams `chosen` and `rejected`."""
    return [[_numbered(sequence, number) for sequence in group] for number, group in enumerate(groups, start=1)]


def _numbered(sequence: TokenSequence, number: int) -> TokenSequence:
    marks = {name: [number * one for one in sequence.streams[name]] for name in ("chosen", "rejected")}
    return TokenSequence(sequence.tokens, {**sequence.streams, **marks})
