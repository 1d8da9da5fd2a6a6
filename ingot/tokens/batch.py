"""What a training step sees: packed rows of tokens with per-token streams.

A `Sequence` is one document or conversation before packing. A stream gives each of its tokens a number (a loss weight, an
advantage, a sampling log-probability…), aligned with the token it speaks about. In a `Batch` everything sits where that
token is *predicted*: position t reads `tokens[t]` and predicts `targets[t]`, the next token of the same document, and
`streams[name][t]` is the stream's value for that target. Padding has document −1, target 0 and all streams 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, device

PADDING_DOCUMENT = -1


@dataclass(frozen=True)
class Sequence:
    """Tokens of one document; every stream has one number per token (the first is never predicted, so it is unused)."""

    tokens: list[int]
    streams: Mapping[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.streams.items():
            if len(values) != len(self.tokens):
                raise ValueError(f"stream {name!r} has {len(values)} values for {len(self.tokens)} tokens")


@dataclass(frozen=True)
class Batch:
    """Packed rows, all tensors [rows, length]; a position is scored where any stream in it is not zero."""

    tokens: Tensor
    targets: Tensor
    positions: Tensor
    documents: Tensor
    streams: Mapping[str, Tensor]

    def to(self, where: device | str) -> Batch:
        """The same batch on another device."""
        return Batch(
            self.tokens.to(where),
            self.targets.to(where),
            self.positions.to(where),
            self.documents.to(where),
            {name: stream.to(where) for name, stream in self.streams.items()},
        )

    @property
    def token_count(self) -> int:
        """Real tokens, padding left out."""
        return int((self.documents != PADDING_DOCUMENT).sum())
