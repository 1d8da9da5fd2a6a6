"""The indexer's scores and the choice of keys, by the kernels, against float64 and against a sort.

On a GPU, or in Triton's interpreter on a CPU with small shapes: TRITON_INTERPRET=1.
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.sparse import select_keys_kernel  # noqa: E402
from ingot.kernels.sparse.select_keys import select_keys_definition  # noqa: E402
from tests.slow import first_fast  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


def best(scores: Tensor, first: int, last: int, keep: int) -> list[int]:
    """By a sort: ties go to the earliest."""
    columns = range(first, min(last + 1, len(scores)))
    values = scores.tolist()
    return sorted(sorted(columns, key=lambda column: (-values[column], column))[:keep])


@pytest.mark.parametrize("kind", first_fast(["ties", "negative", "normal"], keep=2))
@pytest.mark.parametrize(("width", "keep"), [(40, 7), (513, 64), (513, 513), (700, 1)])
@pytest.mark.parametrize("longest", [8192, 256], ids=["one segment", "segments"])
def test_the_largest(monkeypatch: pytest.MonkeyPatch, longest: int, width: int, keep: int, kind: str) -> None:
    """Equal to a sort, ties and all, also over several segments."""
    monkeypatch.setattr(select_keys_kernel, "LONGEST", longest)
    scores = torch.randn(5, width, generator=torch.Generator().manual_seed(width))
    if kind == "ties":
        scores = (scores * 2).round().clamp_min(0)
    if kind == "negative":
        scores = -scores.abs() * 1e-20
    first = torch.tensor([0, 0, 3, 10, 30], dtype=torch.int32)
    last = torch.tensor([width - 1, 5, width - 2, 39, 29], dtype=torch.int32)
    found = select_keys_kernel.choose_largest(scores.to(DEVICE), first.to(DEVICE), last.to(DEVICE), keep).cpu()
    for row in range(5):
        wanted = best(scores[row], int(first[row]), int(last[row]), keep)
        assert found[row].tolist() == wanted + [-1] * (keep - len(wanted)), row


def index(rows: int, queries: int, keys: int, heads: int, width: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((rows, queries, heads, width), (rows, queries, heads), (rows, keys, width))
    query, weight, key = (torch.randn(shape, generator=generator).to(DEVICE, dtype) for shape in shapes)
    return query, weight, key


def check_choice(chosen_BTK: Tensor, scores_BTS: Tensor, first_BT: Tensor, last_BT: Tensor, noise: float) -> None:
    """Nothing that was left out is better than what was taken, by more than rounding; nothing unseen or twice is taken."""
    keep = chosen_BTK.shape[-1]
    column = torch.arange(scores_BTS.shape[-1], device=DEVICE)
    seen = (column >= first_BT[..., None]) & (column <= last_BT[..., None])
    marks = torch.zeros(*seen.shape[:2], seen.shape[2] + 1, dtype=torch.int32, device=DEVICE)
    places = chosen_BTK.long() % marks.shape[-1]  # −1 marks a column that is cut off
    marks = marks.scatter_add_(2, places, torch.ones_like(chosen_BTK))[..., :-1]
    assert int(marks.max()) == 1 and not bool(((marks > 0) & ~seen).any())
    assert torch.equal(marks.sum(-1), seen.sum(-1).clamp_max(keep).int())
    taken, left = marks > 0, seen & (marks == 0)
    worst = scores_BTS.masked_fill(~taken, torch.inf).amin(-1)
    missed = scores_BTS.masked_fill(~left, -torch.inf).amax(-1)
    assert float((missed - worst).max()) < noise * float(scores_BTS.abs().max())


CASES = [(2, 37, 4, 24, 7), (1, 70, 17, 16, 20)] + (
    [(2, 1500, 64, 128, 256), (1, 5000, 32, 128, 2048)] if ON_GPU else []
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if ON_GPU else [torch.float32], ids=str)
@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_keys_of_whole_rows(case: tuple[int, ...], documents: bool, dtype: torch.dtype) -> None:
    rows, length, heads, width, keep = case
    query, weight, key = index(rows, length, length, heads, width, dtype)
    last = torch.arange(length, device=DEVICE).expand(rows, length)
    first = torch.zeros_like(last)
    if documents:  # of one token, of fewer than `keep`, and longer ones
        cut = torch.zeros(length, dtype=torch.long, device=DEVICE)
        for begin in (1, 2, 2 + keep // 2, length // 2):
            cut[begin:] = begin
        first = cut.expand(rows, length)
    chosen = select_keys_kernel.select_keys_operator(query, weight, key, first.int(), last.int(), keep, 0)
    exact = torch.einsum("bthw,bsw->bths", query.double(), key.double()).relu()
    scores = torch.einsum("bths,bth->bts", exact, weight.double()) * (heads * width) ** -0.5
    check_choice(chosen, scores, first, last, 1e-5)  # products of 16-bit inputs are exact, sums in float32
    definition = select_keys_definition(query, weight, key, first, last, keep=keep, past=0)
    check_choice(definition, scores, first, last, 1e-5)


def test_keys_before_the_first_query() -> None:
    """A block of queries in the middle of a row."""
    query, weight, key = index(1, 10, 50, 8, 16, torch.float32)
    last = 30 + torch.arange(10, device=DEVICE)[None]
    chosen = select_keys_kernel.select_keys_operator(
        query, weight, key, torch.zeros_like(last).int(), last.int(), 9, 30
    )
    exact = torch.einsum("bthw,bsw->bths", query.double(), key.double()).relu()
    scores = torch.einsum("bths,bth->bts", exact, weight.double()) * (8 * 16) ** -0.5
    check_choice(chosen, scores, torch.zeros_like(last), last, 1e-5)


def test_keys_in_pages() -> None:
    rows, tokens, heads, width, keep = 3, 2, 5, 24, 9
    query, weight, key = index(rows, tokens, 96, heads, width, torch.float32)
    table = 1 + torch.randperm(rows * 6, generator=torch.Generator().manual_seed(2)).view(rows, 6).int().to(DEVICE)
    stored = torch.full((1 + rows * 6, 1, 16, width), 7.0, device=DEVICE)
    stored[table.long().flatten(), 0] = key.view(-1, 16, width)
    positions = torch.tensor([[90, 91], [3, 4], [8, 9]], device=DEVICE)
    chosen = select_keys_kernel.select_from_pages(query, weight, stored, table, positions, keep)
    exact = torch.einsum("bthw,bsw->bths", query.double(), key.double()).relu()
    scores = torch.einsum("bths,bth->bts", exact, weight.double()) * (heads * width) ** -0.5
    check_choice(chosen, scores, torch.zeros_like(positions), positions, 1e-5)


@pytest.mark.skipif(not ON_GPU, reason="needs a CUDA device")
def test_a_row_longer_than_a_program_holds() -> None:
    scores = torch.randn(3, 70_001, generator=torch.Generator().manual_seed(0)).cuda()
    first, last = (
        torch.zeros(3, dtype=torch.int32).cuda(),
        torch.tensor([70_000, 40_000, 100], dtype=torch.int32).cuda(),
    )
    found = select_keys_kernel.choose_largest(scores, first, last, 2048)
    for row in range(3):
        wanted = best(scores[row], 0, int(last[row]), 2048)
        assert found[row].tolist() == wanted + [-1] * (2048 - len(wanted))
