"""The batch of a training step: packed rows of tokens, with a number per token for each stream.

A `TokenSequence` is one document or conversation before packing. A stream gives each of its tokens a number (a loss weight, an
advantage, a sampling log-probability…), aligned with the token it is about. In a `Batch` everything stands where that
token is *predicted*: position t reads `tokens[t]` and predicts `targets[t]`, the next token of the same document, and
`streams[name][t]` is the stream's value for that target. Padding has document −1, target 0 and all streams 0.

`vectors` are aligned as streams are and give each token several numbers (a teacher's most likely tokens, its hidden state);
they do not decide which tokens are scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device

PADDING_DOCUMENT = -1


@dataclass(frozen=True)
class TokenSequence:
    """Tokens of one document; every stream has one number per token (the first is never predicted, so it is unused)."""

    tokens: list[int]
    streams: Mapping[str, list[float]] = field(default_factory=dict)
    vectors: Mapping[str, Tensor] = field(default_factory=dict)  # [tokens, …] each

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.streams.items()}
        lengths |= {name: len(values) for name, values in self.vectors.items()}
        for name, length in lengths.items():
            if length != len(self.tokens):
                raise ValueError(f"stream {name!r} has {length} values for {len(self.tokens)} tokens")

    def with_stream(self, name: str, values: list[float]) -> TokenSequence:
        """The same sequence with one more stream."""
        return TokenSequence(self.tokens, {**self.streams, name: values}, self.vectors)

    def with_vectors(self, vectors: Mapping[str, Tensor]) -> TokenSequence:
        """The same sequence with more vectors."""
        return TokenSequence(self.tokens, self.streams, {**self.vectors, **vectors})


@dataclass(frozen=True)
class BatchMetadata:
    """Document boundaries and scored positions, found on the host (metadata.py): asking the GPU would make the host wait."""

    starts: Tensor  # int32: the document starts in the flattened batch, then its end, repeated to a round number
    longest: int  # no document is longer than this
    whole: bool  # every row is one document: the mask is plain causality
    scored: (
        Tensor | None
    )  # int64: the scored positions of the flattened batch, padded with positions of weight 0; None: all

    def map(self, change: Callable[[Tensor], Tensor]) -> BatchMetadata:
        """The same metadata with every tensor changed."""
        return BatchMetadata(
            change(self.starts), self.longest, self.whole, None if self.scored is None else change(self.scored)
        )


@dataclass(frozen=True)
class Batch:
    """Packed rows, tensors of [rows, length]; a position is scored where any stream in it is not zero."""

    tokens: Tensor
    targets: Tensor
    positions: Tensor
    documents: Tensor
    streams: Mapping[str, Tensor]
    sources: Tensor | None = None  # [rows]: the number of each row's source, for losses by source
    metadata: BatchMetadata | None = None
    vectors: Mapping[str, Tensor] = field(default_factory=dict)  # [rows, length, …] each

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with every tensor changed."""
        return Batch(
            change(self.tokens),
            change(self.targets),
            change(self.positions),
            change(self.documents),
            {name: change(stream) for name, stream in self.streams.items()},
            None if self.sources is None else change(self.sources),
            None if self.metadata is None else self.metadata.map(change),
            {name: change(vector) for name, vector in self.vectors.items()},
        )

    def pinned(self) -> Batch:
        """The same batch in page-locked memory, from which a GPU copies without waiting."""
        return self.map(lambda tensor: tensor.contiguous().pin_memory())  # an expanded one cannot be written to

    def to(self, where: device | str) -> Batch:
        """The same batch on another device; to a GPU from pinned memory the copy does not wait.

        A copy from a GPU waits: the program could otherwise read what has not arrived.
        """
        ahead = str(where).startswith("cuda")
        return self.map(lambda tensor: tensor.to(where, non_blocking=ahead))

    @property
    def token_count(self) -> int:
        """The number of tokens without padding."""
        return int((self.documents != PADDING_DOCUMENT).sum())
