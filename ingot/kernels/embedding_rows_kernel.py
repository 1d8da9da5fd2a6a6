"""Triton kernels of embedding_rows.py, with sums in a fixed order.

The same token may come many times, so rows are sorted by token first. A program takes CHUNK of them, adds those of one token by
a product with the 0/1 matrix of equal tokens (rows of 16 bits are exact in TensorFloat-32, sums are in float32), and adds
each sum to its row of the total. Sums of tokens that go on in another chunk are stored in `asides`; a second kernel adds them in
their order. No two programs add to the same row at once, so every run gives equal bits.

tests/kernels/test_embedding_rows_cuda.py compares it with the definition.

Shapes: N rows, V vocabulary, D width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK = 32  # rows of a program
BLOCK = 128  # columns of a program
PARTS, PARTS_BLOCK = 128, 64  # sums of chunks that are joined at once, and columns


@triton.jit
def _add(total, tokens, order, rows, asides, count, width, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0) * CHUNK
    index = start + tl.arange(0, CHUNK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    token = tl.load(tokens + index, mask=index < count, other=-1)
    # the tokens before and after this chunk; -2 is none
    before = tl.load(tokens + start - 1, mask=start > 0, other=-2)
    after = tl.load(tokens + start + CHUNK, mask=start + CHUNK < count, other=-2)
    first, last = tl.load(tokens + start), tl.load(tokens + tl.minimum(start + CHUNK, count) - 1)
    source = tl.load(order + index, mask=index < count, other=0)
    inside = (index < count)[:, None] & (column < width)
    given = tl.load(rows + source[:, None] * width + column, mask=inside, other=0.0).to(tl.float32)
    same = (token[:, None] == token[None, :]).to(tl.float32)
    sums = tl.dot(same, given, input_precision="tf32")  # every row has the sum of its token
    earlier = tl.load(tokens + index - 1, mask=(index > start) & (index < count), other=-2)
    complete = (token != earlier) & (token != before) & (token != after)
    at = total + token.to(tl.int64)[:, None] * width + column
    old = tl.load(at, mask=inside & complete[:, None], other=0.0)
    tl.store(at, old + sums, mask=inside & complete[:, None])
    # two rows of `asides` for each chunk: of the token that came from the chunk before, and of the one that goes on
    aside = asides + (tl.program_id(0) * 2).to(tl.int64) * width + column
    here = (index == start)[:, None] & (column < width)
    tl.store(aside + tl.zeros_like(index)[:, None], sums, mask=here & (first == before))
    here = (index == start + CHUNK - 1)[:, None] & (column < width)
    goes_on = (last == after) & (last != before)
    tl.store(aside + width + tl.zeros_like(index)[:, None], sums, mask=here & goes_on)


@triton.jit
def _join(
    total,
    tokens,
    asides,
    count,
    width,
    chunks,
    CHUNK: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    chunk = tl.program_id(0)
    start = chunk * CHUNK
    last = tl.load(tokens + tl.minimum(start + CHUNK, count) - 1)
    before = tl.load(tokens + start - 1, mask=start > 0, other=-2)
    after = tl.load(tokens + start + CHUNK, mask=start + CHUNK < count, other=-2)
    if (last == after) & (last != before):  # a token that begins in this chunk and goes on in the next
        column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        inside = (column < width)[None, :]
        sums = tl.zeros([PARTS, BLOCK], tl.float32)
        for step in range(0, chunks, PARTS):
            further = chunk + 1 + step + tl.arange(0, PARTS)
            first = tl.load(tokens + further * CHUNK, mask=further < chunks, other=-2)
            aside = asides + (further.to(tl.int64) * 2 * width)[:, None] + column[None, :]
            sums += tl.load(aside, mask=(first == last)[:, None] & inside, other=0.0)
        own = tl.load(asides + (chunk * 2 + 1).to(tl.int64) * width + column, mask=column < width, other=0.0)
        at = total + last.to(tl.int64) * width + column
        old = tl.load(at, mask=column < width, other=0.0)
        tl.store(at, old + (own + tl.sum(sums, axis=0)), mask=column < width)


def add_rows_triton(total_VD: Tensor, tokens_N: Tensor, rows_ND: Tensor) -> None:
    """Add rows of 16 bits to those of a total in float32."""
    assert total_VD.is_contiguous() and total_VD.dtype == torch.float32 and rows_ND.element_size() == 2
    count, width = rows_ND.shape
    if not count:
        return
    tokens, order = tokens_N.to(torch.int32).sort(stable=True)
    grid = triton.cdiv(count, CHUNK), triton.cdiv(width, BLOCK)
    asides = torch.empty(2 * grid[0], width, dtype=torch.float32, device=total_VD.device)
    with torch.cuda.device_of(total_VD):
        _add[grid](total_VD, tokens, order, rows_ND.contiguous(), asides, count, width, CHUNK=CHUNK, BLOCK=BLOCK)
        _join[(grid[0], triton.cdiv(width, PARTS_BLOCK))](
            total_VD, tokens, asides, count, width, grid[0], CHUNK=CHUNK, PARTS=PARTS, BLOCK=PARTS_BLOCK
        )
