"""Gradients of queries, keys, slopes and sums of decays by the kernel, chunk by chunk against the formulas in float64.

On a GPU, or in Triton's interpreter on a CPU. The interpreter has no products of bfloat16: there inputs are float32.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from ingot.kernels.linear.chunks import CHUNK, cut_documents

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.linear import key_gradients_kernel as kernel  # noqa: E402
from tests.slow import first_fast  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TILES = {
    "delta rule": kernel.SLOPE_GRADIENTS,
    "values wider than 128": kernel.WIDE_VALUES,
    "heads added up in registers": kernel.GROUP_GRADIENTS,
    "blocks of the keys": kernel.GradientTile(16, 2, warps=4, stages=1),
}


def expected(given: dict[str, Tensor], begin: int, end: int, number: int, group: int, head: int) -> list[Tensor]:
    """dQ, dK, dW and dG [tokens, …] of one head's chunk, as the kernel's file writes them."""
    q, k = (given[name][begin:end, group] for name in ("query", "key"))
    v, given_o, given_u = (given[name][begin:end, head] for name in ("value", "gradient", "error"))
    total, state, after = given["totals"][begin:end, head], given["states"][number, head], given["after"][number, head]
    into, out = torch.exp2(total)[:, None], torch.exp2(total[-1] - total)[:, None]
    weights = (given_o @ v.T * torch.exp2(total[:, None] - total[None, :])).tril()
    of_query, written = weights @ k + into * (given_o @ state.T), out * (v @ after.T)
    of_key = weights.T @ q + written
    of_total = (q * of_query - k * of_key).sum(dim=1)
    of_total[-1] += torch.exp2(total[-1]) * (state * after).sum() + (k * written).sum()
    return [of_query, of_key, -given_u @ state.T, of_total]


@pytest.mark.parametrize("tile", first_fast(list(TILES), keep=2))
@pytest.mark.parametrize(
    ("lengths", "groups", "heads", "key_width", "value_width"),
    [((70, 1, 0, 5), 1, 2, 48, 32), ((64, 3), 2, 4, 16, 80)],
    ids=["documents", "group of two"],
)
def test_against_the_formulas(
    tile: str, lengths: tuple[int, ...], groups: int, heads: int, key_width: int, value_width: int
) -> None:
    generator = torch.Generator().manual_seed(sum(lengths))
    tokens = sum(lengths)
    sequences = cut_documents(torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], device=DEVICE), tokens)
    chunks = len(sequences.chunks)
    shapes = {
        "query": (tokens, groups, key_width),
        "key": (tokens, groups, key_width),
        "value": (tokens, heads, value_width),
        "gradient": (tokens, heads, value_width),
        "error": (tokens, heads, value_width),
        "totals": (tokens, heads),
        "states": (chunks, heads, key_width, value_width),
        "after": (chunks, heads, key_width, value_width),
    }
    given = {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in shapes.items()}
    given["totals"] = -given["totals"].abs()
    ours = {name: x.to(DEVICE) for name, x in given.items()}
    found = kernel.run_key_gradients(
        ours["query"],
        ours["key"],
        ours["value"],
        ours["gradient"],
        ours["totals"],
        ours["states"],
        ours["after"],
        sequences.starts,
        sequences.chunks,
        error_gradient_THV=ours["error"],
        tile=TILES[tile],
    )
    exact = {name: x.double() for name, x in given.items()}
    wanted = [torch.zeros(x.shape, dtype=torch.float64) for x in found if x is not None]
    assert len(wanted) == 4
    for number, (sequence, place) in enumerate(sequences.chunks.tolist()):
        begin, last = sequences.starts[sequence : sequence + 2].tolist()
        begin, end = begin + place * CHUNK, min(begin + place * CHUNK + CHUNK, last)
        for head in range(heads) if begin < end else ():
            group = head // (heads // groups)
            of_query, of_key, of_slope, of_total = expected(exact, begin, end, number, group, head)
            wanted[0][begin:end, group] += of_query
            wanted[1][begin:end, group] += of_key
            wanted[2][begin:end, head] = of_slope
            wanted[3][begin:end, head] = of_total
    for name, one, two in zip(("queries", "keys", "slopes", "totals"), found, wanted, strict=True):
        assert one is not None
        assert float((one.cpu().double() - two).norm() / two.norm()) < 3e-6, name
