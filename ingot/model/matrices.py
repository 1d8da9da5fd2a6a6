"""Says which matrices a fused weight is made of, for optimizers that treat each matrix by itself.

One product is faster than three, so some weights hold several matrices: [queries | keys | values], [gate | up]. An optimizer that
looks at singular values (optim/muon.py) must see the matrices, not the stack of them. A module with such weights says so:

    matrices = {"query_key_value.weight": in_order((H, W), (K, W), (K, W))}

Each pair is a matrix's heads and the rows of a head; heads that are treated together count as one. A weight that is not listed is
one matrix. Stacked experts [E, rows, columns] have the same rows in every expert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Rows:
    """The rows of one matrix in a fused weight: `heads` blocks of `width` rows, the first at `start`, one every `stride`."""

    start: int
    heads: int
    width: int
    stride: int

    def of(self, weight: Tensor) -> Tensor:
        """The view [..., heads, width, columns] of a weight [..., rows, columns]."""
        *leading, row, column = weight.stride()
        return weight.as_strided(
            (*weight.shape[:-2], self.heads, self.width, weight.shape[-1]),
            (*leading, self.stride * row, row, column),
            int(weight.storage_offset()) + self.start * row,
        )


def in_order(*matrices: tuple[int, int]) -> tuple[Rows, ...]:
    """Matrices one after the other, each as (heads, rows of a head)."""
    found, start = [], 0
    for heads, width in matrices:
        found.append(Rows(start, heads, width, width))
        start += heads * width
    return tuple(found)


def in_turn(heads: int, *widths: int) -> tuple[Rows, ...]:
    """Matrices that take turns head by head: rows [first | second | …] of the first head, then of the next."""
    starts = [sum(widths[:index]) for index in range(len(widths))]
    return tuple(Rows(start, heads, width, sum(widths)) for start, width in zip(starts, widths, strict=True))


def fused_weights(model: nn.Module) -> dict[str, tuple[Rows, ...]]:
    """The matrices of every weight that some module describes, by the weight's full name."""
    found: dict[str, tuple[Rows, ...]] = {}
    for path, module in model.named_modules():
        described = getattr(module, "matrices", None)
        if isinstance(described, Mapping):
            found |= {f"{path}.{name}" if path else name: rows for name, rows in described.items()}
    return found
