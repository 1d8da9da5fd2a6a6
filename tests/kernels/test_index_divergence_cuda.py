"""The indexer's loss over chosen keys, by the kernels and by the definition, against the formula in float64.

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

from ingot.kernels.sparse import index_divergence_kernel as kernel  # noqa: E402
from ingot.kernels.sparse.index_divergence import chosen_divergence_definition, mean_probabilities_definition  # noqa: E402
from ingot.kernels.sparse.sparse_attention_kernel import sparse_attention_forward  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}  # relative to the norm
DTYPES = list(BOUNDS) if ON_GPU else [torch.float32]
# rows, queries, keys, heads, latent, rotated, indexer heads, their width, keep
SHAPES = [(2, 6, 30, 5, 24, 6, 3, 10, 9), (1, 5, 40, 17, 16, 16, 16, 16, 40)]
if ON_GPU:
    SHAPES += [(1, 100, 2500, 128, 512, 64, 64, 128, 2048), (2, 50, 300, 16, 256, 32, 32, 128, 100)]


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def choices(rows: int, queries: int, keys: int, keep: int) -> Tensor:
    """Query t of the first row has t + 1 keys, of the others all that are kept; the last query has none."""
    order = (
        torch.rand(rows, queries, keys, generator=torch.Generator().manual_seed(9)).argsort(dim=-1)[..., :keep].int()
    )
    order[0] = order[0].masked_fill(torch.arange(keep) > torch.arange(queries)[:, None], -1)
    order[-1, -1] = -1
    return order.to(DEVICE)


def exact_probabilities(query: Tensor, entry: Tensor, selected: Tensor, scale: float) -> Tensor:
    result = torch.zeros(selected.shape, dtype=torch.float64, device=DEVICE)
    for row, token in torch.cartesian_prod(torch.arange(len(query)), torch.arange(query.shape[1])).tolist():
        places = (selected[row, token] >= 0).nonzero().flatten()
        keys = selected[row, token, places].long()
        result[row, token, places] = torch.softmax(scale * query[row, token] @ entry[row, keys].T, dim=-1).mean(0)
    return result


def exact_divergence(query: Tensor, weight: Tensor, key: Tensor, selected: Tensor, target: Tensor) -> Tensor:
    """Query by query."""
    totals = []
    for row, token in torch.cartesian_prod(torch.arange(len(query)), torch.arange(query.shape[1])).tolist():
        places = (selected[row, token] >= 0).nonzero().flatten()
        keys = selected[row, token, places].long()
        products = torch.relu(query[row, token] @ key[row, keys].T / query.shape[3] ** 0.5)
        scores = weight[row, token] @ products / query.shape[2] ** 0.5
        wanted = target[row, token, places]
        totals.append((wanted * (wanted.log() - scores.log_softmax(-1))).sum())
    return torch.stack(totals).view(query.shape[:2])


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().double() - wanted.detach()).norm() / wanted.detach().norm())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_mean_probabilities(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows, queries, keys, heads, latent, rotated, _, _, keep = shape
    query = numbers(rows, queries, heads, latent + rotated, seed=0, dtype=dtype)
    entry = numbers(rows, keys, latent + rotated, seed=1, dtype=dtype)
    selected, scale = choices(rows, queries, keys, keep), (latent + rotated) ** -0.5
    _, sums = sparse_attention_forward(query, entry, selected, latent, scale)
    wanted = exact_probabilities(query.double(), entry.double(), selected, scale)
    found = kernel.mean_probabilities_operator(query, entry, selected, sums, latent, scale)
    assert relative(found, wanted) < BOUNDS[torch.float32] * (1 if dtype == torch.float32 else 20)  # nothing is rounded
    assert relative(mean_probabilities_definition(query, entry, selected, scale), wanted) < 1e-4


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("way", ["kernel", "definition"])
def test_divergence_and_its_gradients(way: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    rows, queries, keys, *_, heads, width, keep = shape
    inputs = [
        numbers(rows, queries, heads, width, seed=0, dtype=dtype).requires_grad_(),
        numbers(rows, queries, heads, seed=1).requires_grad_(),
        numbers(rows, keys, width, seed=2, dtype=dtype).requires_grad_(),
    ]
    selected = choices(rows, queries, keys, keep)
    target = numbers(rows, queries, keep, seed=3).exp().masked_fill(selected < 0, 0)
    target = target / target.sum(-1, keepdim=True).clamp_min(1e-9)
    twins = [each.detach().double().requires_grad_() for each in inputs]
    if way == "kernel":
        scaled = inputs[1] * (heads * width) ** -0.5
        found = kernel.chosen_divergence_forward(inputs[0], scaled, inputs[2], selected, target)[0]
    else:
        found = chosen_divergence_definition(inputs[0], inputs[1], inputs[2], selected, target)
    wanted = exact_divergence(twins[0], twins[1], twins[2], selected, target.double())
    assert relative(found, wanted) < BOUNDS[torch.float32] * (1 if dtype == torch.float32 else 10)
    assert float(found[-1, -1].detach()) == 0
    direction = numbers(rows, queries, seed=4)
    direction[0, 1] = 0  # as for padding
    ours, theirs = grad((found * direction).sum(), inputs), grad((wanted * direction).sum(), twins)
    for label, one, other in zip(("query", "weight", "key"), ours, theirs, strict=True):
        assert relative(one, other) < BOUNDS[dtype], label
