"""Attention over pages against plain attention in float64: the definition on the CPU, and the kernels in Triton's interpreter.

TRITON_INTERPRET=1 python -m pytest tests/kernels/test_attend_paged.py
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

from ingot.kernels.attention import attend_latent
from ingot.kernels.attention.attend_latent import attend_latent_definition, mix_entries
from ingot.kernels.attention.attend_paged import attend_paged_definition, choose_splits, launch, shared_pages
from ingot.kernels.attention.attention_options import AttentionOptions
from tests.kernels.paged_cases import CASES, Case, check, make

interpreted = pytest.mark.skipif(
    find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs triton, and TRITON_INTERPRET=1 when it is first imported",
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_definition(case: Case) -> None:
    """Pages that are copied together: rings that have wrapped, padding, windows, chunks."""
    pages = make(case)
    reach = int(pages.positions_BT.max()) + 1
    found = attend_paged_definition(*pages.arguments(), case.options(pages.sinks_H), reach)
    real = case.tokens - case.padding
    difference = (found.double() - pages.expected_BHTV)[:, :, :real]
    assert float(difference.abs().max()) < 1e-5


@interpreted
@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_the_definition(case: Case) -> None:
    pages = make(case)
    check(case, pages, launch(*pages.arguments(), case.options(pages.sinks_H)), 1e-5)


@interpreted
@pytest.mark.parametrize("tokens", [3, 12, 40])  # tiles of 16, 64 and 128 queries
def test_sixteen_bits(tokens: int) -> None:
    """float16; the interpreter multiplies no matrices of bfloat16."""
    case = Case("sixteen bits", starts=(0, 70), tokens=tokens, table=16)
    pages = make(case, torch.float16)
    found = launch(*pages.arguments(), case.options(None))
    check(case, pages, found, 2e-3)  # the spacing of float16 at 2 to 4, where the largest values lie


@interpreted
def test_a_cache_of_another_dtype_is_read_as_the_queries() -> None:
    case = Case("mixed", starts=(4, 40), tokens=2)
    pages = make(case, torch.bfloat16)
    pages.query_BHTW = pages.query_BHTW.float()
    check(case, pages, launch(*pages.arguments(), case.options(None)), 1e-5)


def test_splits_fill_the_device_and_no_more() -> None:
    """By hand, for 132 multiprocessors with four programs each: 528 programs, shares of at least 128 keys."""
    assert choose_splits(64 * 3, 2048, resident=4) == 2
    assert choose_splits(3, 2048, resident=4) == 16
    assert choose_splits(3, 2**20, resident=4) == 128
    assert choose_splits(64 * 8, 2**20, resident=4) == 1
    assert choose_splits(1000, 2**20, resident=4) == 1
    assert choose_splits(1, 16, resident=4) == 1


@pytest.mark.parametrize("kernel", [False, pytest.param(True, marks=interpreted)], ids=["definition", "kernel"])
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("heads", [5, 16])
@pytest.mark.parametrize(("table", "page"), [(10, 16), (36, 8)])  # unsplit and split
def test_latent_attention(kernel: bool, tokens: int, heads: int, table: int, page: int) -> None:
    generator = torch.Generator().manual_seed(0)
    latent_width, rotated, starts = 24, 8, torch.tensor([0, 17, 150])
    width, rows = latent_width + rotated, len(starts)
    positions_BT = starts[:, None] + torch.arange(tokens)
    query_BTHE = torch.randn(rows, heads, tokens, width, generator=generator).transpose(1, 2)
    table_BR = 1 + torch.randperm(rows * table, generator=generator).view(rows, table).int()
    entries_N1PE = torch.randn(1 + rows * table, 1, page, width, generator=generator)
    given = (query_BTHE, entries_N1PE, table_BR, positions_BT, AttentionOptions(0.25))
    if kernel:
        found = attend_latent.launch(*given, latent_width=latent_width)
    else:
        found = attend_latent_definition(*given, latent_width=latent_width, reach=150 + tokens)
    entry_BSE = entries_N1PE[table_BR.long(), 0].flatten(1, 2)
    seen_BTS = torch.arange(table * page) <= positions_BT[..., None]
    expected = mix_entries(query_BTHE.double(), entry_BSE.double(), seen_BTS, latent_width, 0.25)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)


def test_shared_pages_are_found_where_it_pays() -> None:
    table_BR = torch.tensor([[*range(1, 11), 50], [*range(1, 11), 60], [*range(1, 10), 70, 71]])
    positions_B1 = torch.tensor([[165], [170], [161]])
    assert shared_pages(table_BR[:2], positions_B1[:2], 16, 171) == 10
    assert shared_pages(table_BR, positions_B1, 16, 171) == 9
    assert shared_pages(table_BR[:1], positions_B1[:1], 16, 171) == 0  # one row shares with nobody
    assert shared_pages(table_BR, positions_B1, 16, 177) == 0  # a ring: its pages are not in order
    assert shared_pages(table_BR, positions_B1.expand(3, 9), 16, 171) == 0  # too many scores at once
    assert shared_pages(table_BR[:, :6], positions_B1 - 90, 16, 81) == 0  # too few tokens
    alike = table_BR[:1].expand(2, -1)
    assert shared_pages(alike, positions_B1[:2], 16, 176) == 10  # never all pages: the newest key is apart
