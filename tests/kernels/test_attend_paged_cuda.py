"""Attention over pages on a CUDA device against the definition in float64: small hard cases, real sizes, captured graphs.

pytest tests/kernels/test_attend_paged_cuda.py -c /dev/null --rootdir=. --noconftest
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from ingot.kernels.attention.attend_paged import kernel_allowed, launch
from ingot.kernels.attention.attend_plain import attend_plain
from ingot.kernels.attention.attention_options import AttentionOptions
from tests.kernels.paged_cases import CASES, Case, check, make

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

TOLERANCES = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # a step or two of the format at 2 to 4


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_like_the_definition(case: Case, dtype: torch.dtype) -> None:
    pages = make(case, dtype, "cuda")
    options = case.options(pages.sinks_H)
    assert kernel_allowed(pages.query_BHTW, pages.keys_NKPW, pages.values_NKPV, options)
    check(case, pages, launch(*pages.arguments(), options), TOLERANCES[dtype])


def scattered(
    rows: int, heads: int, key_heads: int, width: int, value_width: int, length: int, tokens: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random queries, pages full of random numbers, and a table that takes them out of order."""
    generator = torch.Generator("cuda").manual_seed(0)
    random = partial(torch.randn, generator=generator, device="cuda", dtype=dtype)
    pages = -(-length // 16)
    query = random(rows, tokens, heads, width).transpose(1, 2)
    keys = random(1 + rows * pages, key_heads, 16, width)
    values = random(1 + rows * pages, key_heads, 16, value_width)
    table = 1 + torch.randperm(rows * pages, generator=generator, device="cuda").view(rows, pages).int()
    return query, keys, values, table


def expected(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    positions: Tensor,
    scale: float,
    window: int | None = None,
) -> Tensor:
    """Row by row, in float64."""
    results = []
    for row in range(len(query)):
        key, value = (
            stream[table[row].long()].transpose(0, 1).flatten(1, 2)[None].double() for stream in (keys, values)
        )
        place, at = torch.arange(key.shape[2], device="cuda"), positions[row, :, None]
        visible = (place <= at) & (place > at - (window or key.shape[2]))
        results.append(
            attend_plain(query[row : row + 1].double(), key, value, visible[None, None], AttentionOptions(scale))
        )
    return torch.cat(results)


def compare(found: Tensor, exact: Tensor) -> None:
    relative = float((found.double() - exact).norm() / exact.norm())
    assert relative < {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}[found.dtype], relative


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(
    ("heads", "key_heads", "width", "value_width"),
    [(9, 3, 64, 64), (32, 8, 128, 128), (16, 2, 80, 80), (16, 16, 96, 96), (8, 1, 256, 256), (16, 4, 192, 128)],
)
@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (64, 1), (5, 8), (3, 40), (2, 700)])
def test_real_sizes(
    dtype: torch.dtype, heads: int, key_heads: int, width: int, value_width: int, rows: int, tokens: int
) -> None:
    query, keys, values, table = scattered(rows, heads, key_heads, width, value_width, 2048, tokens, dtype)
    starts = torch.linspace(0, 2048 - tokens, rows + 1, device="cuda").long()[1:]
    positions = starts[:, None] + torch.arange(tokens, device="cuda")
    scale = width**-0.5
    found = launch(query, keys, values, table, positions, AttentionOptions(scale))
    compare(found, expected(query, keys, values, table, positions, scale))
    found = launch(query, keys, values, table, positions, AttentionOptions(scale, window=500))
    compare(found, expected(query, keys, values, table, positions, scale, window=500))


@pytest.mark.parametrize("rows", [1, 64])
def test_a_captured_graph_serves_other_lengths_and_pages(rows: int) -> None:
    query, keys, values, table = scattered(rows, 9, 3, 64, 64, 4096, 1, torch.bfloat16)
    positions = torch.zeros(rows, 1, dtype=torch.long, device="cuda")
    launch(query, keys, values, table, positions, AttentionOptions(0.125))  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = launch(query, keys, values, table, positions, AttentionOptions(0.125))
    for seed in range(3):
        generator = torch.Generator("cuda").manual_seed(seed)
        positions.random_(0, 4096, generator=generator)
        table.copy_(table.flatten()[torch.randperm(table.numel(), generator=generator, device="cuda")].view_as(table))
        graph.replay()
        compare(found, expected(query, keys, values, table, positions, 0.125))
