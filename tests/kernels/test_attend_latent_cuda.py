"""Multi-head latent attention over pages on a CUDA device against the definition in float64.

pytest tests/kernels/test_attend_latent_cuda.py -c /dev/null --rootdir=. --noconftest
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ingot.kernels.attention.attend_latent import kernel_exists, launch
from ingot.kernels.attention.attend_plain import attend_plain
from ingot.kernels.attention.attention_options import AttentionOptions

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

BOUNDS = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 6e-3}  # relative to the norm


def scattered(
    rows: int, tokens: int, heads: int, latent_width: int, rotated: int, length: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, pages full of random entries, and a table that takes them out of order."""
    generator = torch.Generator("cuda").manual_seed(0)
    pages, width = -(-length // 16), latent_width + rotated
    query = torch.randn(rows, heads, tokens, width, generator=generator, device="cuda", dtype=dtype).transpose(1, 2)
    entries = torch.randn(1 + rows * pages, 1, 16, width, generator=generator, device="cuda", dtype=dtype)
    table = 1 + torch.randperm(rows * pages, generator=generator, device="cuda").view(rows, pages).int()
    return query, entries, table


def expected(query: Tensor, entries: Tensor, table: Tensor, positions: Tensor, latent: int, scale: float) -> Tensor:
    """All heads on one key head whose values are the keys' first channels; row by row, in float64."""
    results = []
    for row in range(len(query)):
        key = entries[table[row].long(), 0].flatten(0, 1)[None, None].double()
        visible = torch.arange(key.shape[2], device="cuda") <= positions[row, :, None]
        asked = query[row : row + 1].transpose(1, 2).double()
        results.append(attend_plain(asked, key, key[..., :latent], visible[None, None], AttentionOptions(scale)))
    return torch.cat(results).transpose(1, 2)


def compare(found: Tensor, exact: Tensor) -> None:
    relative = float((found.double() - exact).norm() / exact.norm())
    assert relative < BOUNDS[found.dtype], relative


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize(("heads", "latent", "rotated"), [(128, 512, 64), (16, 512, 64), (20, 256, 32), (5, 96, 24)])
@pytest.mark.parametrize(("rows", "tokens"), [(1, 1), (64, 1), (5, 4), (2, 100)])
def test_like_the_definition(dtype: torch.dtype, heads: int, latent: int, rotated: int, rows: int, tokens: int) -> None:
    query, entries, table = scattered(rows, tokens, heads, latent, rotated, 2048, dtype)
    assert kernel_exists(latent, query.shape[-1] - latent)
    starts = torch.linspace(0, 2048 - tokens, rows + 1, device="cuda").long()[1:]
    positions = starts[:, None] + torch.arange(tokens, device="cuda")
    scale = (latent + rotated) ** -0.5
    found = launch(query, entries, table, positions, AttentionOptions(scale), latent_width=latent)
    compare(found, expected(query, entries, table, positions, latent, scale))


def test_a_captured_graph_serves_other_lengths() -> None:
    query, entries, table = scattered(4, 1, 16, 512, 64, 4096, torch.bfloat16)
    positions = torch.zeros(4, 1, dtype=torch.long, device="cuda")
    launch(query, entries, table, positions, AttentionOptions(0.04), latent_width=512)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = launch(query, entries, table, positions, AttentionOptions(0.04), latent_width=512)
    for seed in range(3):
        positions.random_(0, 4096, generator=torch.Generator("cuda").manual_seed(seed))
        graph.replay()
        compare(found, expected(query, entries, table, positions, 512, 0.04))
