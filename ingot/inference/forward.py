"""The pass of sampling: `Transformer.hidden` with caches.

Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ingot.model.mixers.cache import Cache
from ingot.model.transformer import Transformer


def states(
    model: Transformer,
    tokens_BT: Tensor,
    positions_BT: Tensor,
    caches: Sequence[Cache | None],
    *,
    slots: Tensor,
    pages: Tensor,
    lengths: Tensor | None = None,
    reach: int,
) -> Tensor:
    """States [B, T, D] after the last norm."""
    return model.hidden(tokens_BT, positions_BT, caches=caches, slots=slots, pages=pages, lengths=lengths, reach=reach)
