"""What Triton kernels over a query's chosen keys share: its indices, and its heads. The indices end with some below 0."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _count(selected, kept, BLOCK_K: tl.constexpr):
    """The number of indices up to the last that is not below 0."""
    place = tl.arange(0, BLOCK_K)
    chosen = tl.load(selected + place, mask=place < kept, other=-1)
    return tl.max(tl.where(chosen >= 0, place + 1, 0), 0)


@triton.jit
def _indices(selected, start, end, BLOCK: tl.constexpr):
    """BLOCK of the query's indices; −1 from `end` on."""
    place = start + tl.arange(0, BLOCK)
    return tl.load(selected + place, mask=place < end, other=-1)


@triton.jit
def _heads(at, step, inside, begin: tl.constexpr, width: tl.constexpr, BLOCK: tl.constexpr):
    """Channels [begin, begin + width) of the heads that begin at addresses `at`."""
    wide = tl.arange(0, BLOCK)
    return tl.load(
        at[:, None] + (begin + wide)[None, :] * step, mask=inside[:, None] & (wide < width)[None, :], other=0.0
    )
