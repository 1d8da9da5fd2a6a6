"""The indexer's loss over all visible keys, by the kernels and by the definition, against the formula in float64.

On a GPU, or in Triton's interpreter on a CPU with small shapes: TRITON_INTERPRET=1.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.attention import blocks  # noqa: E402
from ingot.kernels.sparse import dense_divergence  # noqa: E402
from ingot.kernels.sparse import dense_divergence_kernel as kernel  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}  # relative to the norm
DTYPES = list(BOUNDS) if ON_GPU else [torch.float32]
# rows, queries, keys, heads, their width, indexer heads, their width
SHAPES = [(2, 21, 21, 3, 24, 5, 10), (1, 9, 70, 2, 16, 2, 16)]
if ON_GPU:
    SHAPES += [(2, 300, 300, 16, 192, 64, 128), (1, 130, 1500, 128, 192, 32, 128), (1, 257, 257, 4, 80, 3, 64)]


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def sights(rows: int, queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """Causal, two documents in each row of different lengths; and which tokens count: padding ends the first row."""
    last = keys - queries + torch.arange(queries).expand(rows, -1)
    cut = keys // 3 + 2 * torch.arange(rows)[:, None]
    first = torch.where(last >= cut, cut, 0)
    counted = torch.ones(rows, queries, dtype=torch.bool)
    counted[0, -2:] = False
    return first.to(DEVICE), last.to(DEVICE), counted.to(DEVICE)


def exact(index: list[Tensor], query: Tensor, key: Tensor, sight: tuple[Tensor, ...], scale: float) -> Tensor:
    """Query by query."""
    index_query, weight, index_key = index
    first, last, counted = sight
    total = torch.zeros((), dtype=torch.float64, device=DEVICE)
    for row, token in counted.nonzero().tolist():
        seen = slice(int(first[row, token]), int(last[row, token]) + 1)
        target = torch.einsum("hw,hsw->hs", query[row, :, token], key[row, :, seen] * scale).softmax(-1).mean(0)
        products = torch.relu(index_query[row, token] @ index_key[row, seen].T / index_query.shape[3] ** 0.5)
        scores = weight[row, token] @ products / index_query.shape[2] ** 0.5
        total = total + (target * (target.log() - scores.log_softmax(-1))).sum()
    return total


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().double() - wanted.detach()).norm() / wanted.detach().norm())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
@pytest.mark.parametrize("way", ["kernel", "definition"])
def test_loss_and_gradients(
    way: str, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several blocks of queries, and with another number before the loss than one."""
    rows, queries, keys, heads, width, index_heads, index_width = shape
    query = numbers(rows, queries, heads, width, seed=0, dtype=dtype).transpose(1, 2)
    key = numbers(rows, heads, keys, width, seed=1, dtype=dtype)
    index = (
        numbers(rows, queries, index_heads, index_width, seed=2, dtype=dtype).requires_grad_(),
        numbers(rows, queries, index_heads, seed=3).requires_grad_(),
        numbers(rows, keys, index_width, seed=4, dtype=dtype).requires_grad_(),
    )
    sight, scale = sights(rows, queries, keys), width**-0.5
    monkeypatch.setattr(dense_divergence, "kernel_allowed", lambda *given: way == "kernel")
    monkeypatch.setattr(blocks, "BLOCK_NUMBERS", (queries // 3) * rows * keys * (1 if way == "kernel" else heads))
    seen: list[Tensor] = []

    def all_heads(mean: Tensor) -> Tensor:
        seen.append(mean)
        return mean

    given = {"scale": scale, "past": keys - queries, "all_heads": all_heads}
    found = dense_divergence.dense_divergence(index, query, key, *sight, **given)
    assert len(seen) >= 3 and not any(part.requires_grad for part in seen)
    twins = [each.detach().double().requires_grad_() for each in index]
    wanted = exact(twins, query.double(), key.double(), sight, scale)
    assert relative(found, wanted) < BOUNDS[torch.float32] * (1 if dtype == torch.float32 else 20)
    ours, theirs = grad(found * 30, index), grad(wanted * 30, twins)
    # of millions of products some round to the other side of zero, where relu's slope jumps
    jumps = 1e-3 if queries * keys * index_heads > 10**6 else 0
    for label, one, other in zip(("query", "weight", "key"), ours, theirs, strict=True):
        assert relative(one, other) < BOUNDS[dtype] + jumps, label


def test_without_gradients() -> None:
    """In evaluation the loss alone is made, and it is the same."""
    query, key = numbers(1, 2, 9, 16, seed=0), numbers(1, 2, 9, 16, seed=1)
    index = numbers(1, 9, 3, 16, seed=2), numbers(1, 9, 3, seed=3), numbers(1, 9, 16, seed=4)
    first, last, counted = sights(1, 9, 9)
    target = kernel.mean_of_heads(query, key, first, last, 0.25)
    total = kernel.sum_of_divergences(*index, first, last, target, counted)
    with torch.no_grad():
        scaled = (index[1] * 48**-0.5).transpose(1, 2)
        alone, *nothing = kernel.sum_and_gradients(
            index[0], scaled, index[2], first, last, target, counted.float(), False
        )
    assert torch.equal(alone, total) and not any(part.numel() > 1 for part in nothing)
    wanted = exact([each.double() for each in index], query.double(), key.double(), (first, last, counted), 0.25)
    assert relative(alone, wanted) < BOUNDS[torch.float32]
