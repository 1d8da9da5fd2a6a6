"""Attention to chosen entries, by the kernels, against float64: values and every gradient.

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

from ingot.kernels.attention.attention_options import AttentionOptions  # noqa: E402
from ingot.kernels.sparse import sparse_attention_kernel, sparse_gradients_kernel  # noqa: E402
from ingot.kernels.sparse.sparse_attention import sparse_attention_definition  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# relative to the norm; the kernels round probabilities and their gradients to 16 bits before the products, as the definition does
BOUNDS = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}
DTYPES = list(BOUNDS) if ON_GPU else [torch.float32]
# rows, queries, keys, heads, latent, rotated, keep
SHAPES = {
    "odd": (2, 5, 37, 5, 24, 6, 11),
    "one token": (3, 1, 20, 3, 16, 8, 20),
    "one key": (1, 4, 9, 17, 16, 16, 1),
}
if ON_GPU:
    SHAPES |= {
        "deepseek": (1, 130, 2500, 128, 512, 64, 2048),
        "sixteen heads": (2, 65, 700, 16, 512, 64, 300),
        "thirty heads": (1, 67, 400, 30, 256, 32, 100),
    }
Inputs = tuple[Tensor, Tensor, Tensor]


def inputs(shape: tuple[int, ...], dtype: torch.dtype, *, full: bool) -> Inputs:
    """Random queries, entries, and choices in random order; unless `full`, query t has t + 1 keys, and some queries gaps."""
    rows, queries, keys, heads, latent, rotated, keep = shape
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(rows, queries, heads, latent + rotated, generator=generator)
    entry = torch.randn(rows, keys, latent + rotated, generator=generator)
    order = torch.rand(rows, queries, keys, generator=generator).argsort(dim=-1)[..., :keep].int()
    if not full:
        order = order.masked_fill(torch.arange(order.shape[-1]) > torch.arange(queries)[:, None], -1)
        order[:, -1, 1::2] = -1  # gaps between the chosen ones
    selected = torch.full((rows, queries, keep), -1, dtype=torch.int32)
    selected[..., : order.shape[-1]] = order
    return query.to(DEVICE, dtype), entry.to(DEVICE, dtype), selected.to(DEVICE)


def exact(query: Tensor, entry: Tensor, selected: Tensor, latent: int, scale: float) -> Tensor:
    """The formula, query by query."""
    result = query.new_zeros(*query.shape[:3], latent)
    for row, token in torch.cartesian_prod(torch.arange(query.shape[0]), torch.arange(query.shape[1])).tolist():
        keys = selected[row, token][selected[row, token] >= 0].long()
        if len(keys):
            weights = torch.softmax(scale * query[row, token] @ entry[row, keys].T, dim=-1)
            result = result.index_put(
                (torch.tensor(row, device=DEVICE), torch.tensor(token, device=DEVICE)),
                weights @ entry[row, keys, :latent],
            )
    return result


def relative(found: Tensor, wanted: Tensor, least: float = 0.0) -> float:
    """Of the norm, or of `least` where that is more."""
    return float((found.detach().double() - wanted.detach()).norm() / max(float(wanted.detach().norm()), least))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("full", [True, False], ids=["full", "few"])
@pytest.mark.parametrize("name", SHAPES)
def test_values_and_gradients(name: str, full: bool, dtype: torch.dtype) -> None:
    shape = SHAPES[name]
    latent, scale = shape[4], (shape[4] + shape[5]) ** -0.5
    query, entry, selected = inputs(shape, dtype, full=full)
    given = [query.requires_grad_(), entry.requires_grad_()]
    mixed, sums = sparse_attention_kernel.sparse_attention_forward(query, entry, selected, latent, scale)
    twins = [x.detach().double().requires_grad_() for x in given]
    wanted = exact(twins[0], twins[1], selected, latent, scale)
    assert relative(mixed, wanted) < BOUNDS[dtype]
    direction = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    ours, theirs = grad((mixed * direction.to(dtype)).sum(), given), grad((wanted * direction.to(dtype)).sum(), twins)
    # where all have one key no query has a gradient: then the noise is compared with what came in
    least = float(direction.norm()) if int((selected >= 0).sum(-1).max()) == 1 else 0.0
    for label, one, other in zip(("query", "entry"), ours, theirs, strict=True):
        assert relative(one, other, least) < 2 * BOUNDS[dtype], label
    scores = scale * torch.einsum("bthe,bse->bths", twins[0], twins[1]).detach()
    row, token = 0, shape[1] // 2
    keys = selected[row, token][selected[row, token] >= 0].long()
    if len(keys):
        assert (
            sums[row, token] - scores[row, token, :, keys].logsumexp(-1) / torch.log(torch.tensor(2.0))
        ).abs().max() < 0.02


def test_a_query_without_keys_gives_zeros_and_takes_no_gradient() -> None:
    query, entry, selected = inputs(SHAPES["odd"], torch.float32, full=True)
    selected[0, 2] = -1
    query.requires_grad_()
    entry.requires_grad_()
    options = AttentionOptions(0.2)
    for mixed in (
        sparse_attention_kernel.sparse_attention_forward(query, entry, selected, 24, 0.2)[0],
        sparse_attention_definition(query, entry, selected, options, latent_width=24),
    ):
        assert mixed[0, 2].abs().max() == 0 and mixed[0, 1].abs().min() > 0
        of_query, of_entry = grad(mixed.square().sum(), (query, entry))
        assert of_query[0, 2].abs().max() == 0 and bool(of_query.isfinite().all() & of_entry.isfinite().all())


@pytest.mark.parametrize("queries", [1, 3])
def test_gradients_in_parts(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backward pass takes a few queries at a time, also from two rows; each query is as exact as before."""
    shape = SHAPES["odd"]
    query, entry, selected = inputs(shape, torch.float32, full=False)
    monkeypatch.setattr(sparse_gradients_kernel, "PART", queries * 2 * shape[3] * shape[6] * query.element_size())
    given = [query.requires_grad_(), entry.requires_grad_()]
    twins = [x.detach().double().requires_grad_() for x in given]
    ours = grad(
        sparse_attention_kernel.sparse_attention_forward(query, entry, selected, 24, 0.2)[0].square().sum(), given
    )
    theirs = grad(exact(twins[0], twins[1], selected, 24, 0.2).square().sum(), twins)
    for one, other in zip(ours, theirs, strict=True):
        assert relative(one, other) < 1e-5


def test_queries_in_any_layout() -> None:
    """Heads before tokens in memory, as the projection may leave them."""
    query, entry, selected = inputs(SHAPES["odd"], torch.float32, full=True)
    turned = query.transpose(1, 2).contiguous().transpose(1, 2)
    one = sparse_attention_kernel.sparse_attention_forward(query, entry, selected, 24, 0.2)[0]
    other = sparse_attention_kernel.sparse_attention_forward(turned, entry, selected, 24, 0.2)[0]
    assert torch.equal(one, other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows", [1, 3])
def test_over_pages(rows: int, dtype: torch.dtype) -> None:
    """Few queries share the work of many programs; pages lie out of order."""
    keep = 300 if ON_GPU else 150  # more than one split's least share
    shape = (rows, 2, 320, 5, 24, 6, keep)
    query, entry, selected = inputs(shape, dtype, full=True)
    pages = 1 + torch.randperm(rows * 20, generator=torch.Generator().manual_seed(2)).view(rows, 20).int().to(DEVICE)
    stored = torch.zeros(1 + rows * 20, 1, 16, 30, dtype=dtype, device=DEVICE)
    stored[pages.long().flatten(), 0] = entry.view(-1, 16, 30)
    found = sparse_attention_kernel.launch_pages(query, stored, pages, selected, 24, 0.2)
    assert relative(found, exact(query.double(), entry.double(), selected, 24, 0.2)) < BOUNDS[dtype]


@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_compiled() -> None:
    """torch.compile leaves the operators whole, also where the pass is recomputed."""
    query, entry, selected = inputs(SHAPES["sixteen heads"], torch.bfloat16, full=True)
    given = [query.requires_grad_(), entry.requires_grad_()]

    def attend(query: Tensor, entry: Tensor) -> Tensor:
        mixed, _ = sparse_attention_kernel.sparse_attention_forward(query * 2, entry, selected, 512, 0.04)
        return mixed.float().square().sum()

    plain = grad(attend(*given), given)
    compiled = torch.compile(attend, fullgraph=True)
    again = grad(torch.utils.checkpoint.checkpoint(compiled, *given, use_reentrant=False), given)
    for one, other in zip(again, plain, strict=True):
        assert relative(one, other.double()) < 1e-2


@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_a_captured_graph_serves_other_choices() -> None:
    query, entry, selected = inputs((4, 1, 4096, 16, 512, 64, 512), torch.bfloat16, full=True)
    table = torch.arange(1024, device="cuda").view(4, 256).int()
    stored = entry.view(1024, 1, 16, 576)
    sparse_attention_kernel.launch_pages(query, stored, table, selected, 512, 0.04)  # compiled before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = sparse_attention_kernel.launch_pages(query, stored, table, selected, 512, 0.04)
    for seed in range(2):
        generator = torch.Generator("cuda").manual_seed(seed)
        selected.copy_(torch.rand(4, 1, 4096, generator=generator, device="cuda").argsort(dim=-1)[..., :512])
        selected[seed, 0, 100:] = -1
        graph.replay()
        wanted = exact(query.double(), entry.double(), selected, 512, 0.04)
        assert relative(found, wanted) < BOUNDS[torch.bfloat16]
