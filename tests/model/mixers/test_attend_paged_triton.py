"""The Triton kernels of attention over pages in Triton's interpreter, on the CPU, against the definition.

TRITON_INTERPRET=1 python -m pytest tests/model/mixers/test_attend_paged_triton.py
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from ingot.model.mixers.attend_latent_triton import attend_latent_triton
from ingot.model.mixers.attend_paged_triton import attend_paged_triton, choose_splits
from ingot.model.mixers.sparse import mix_entries
from tests.model.mixers.paged_cases import CASES, Case, check, make

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs triton, and TRITON_INTERPRET=1 when it is first imported",
)


@pytest.fixture(autouse=True)
def indices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter makes loop bounds of arrays of one number by int(), which numpy 2.4 refuses."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_the_definition(case: Case) -> None:
    pages = make(case)
    found = attend_paged_triton(*pages.arguments(), sinks_H=pages.sinks_H, **case.options)
    check(case, pages, found, 1e-5)


@pytest.mark.parametrize("tokens", [3, 12, 40])  # tiles of 16, 64 and 128 queries
def test_sixteen_bits(tokens: int) -> None:
    """float16; the interpreter multiplies no matrices of bfloat16."""
    case = Case("sixteen bits", starts=(0, 70), tokens=tokens, table=16)
    pages = make(case, torch.float16)
    found = attend_paged_triton(*pages.arguments(), **case.options)
    check(case, pages, found, 2e-3)  # the spacing of float16 at 2 to 4, where the largest values lie


def test_a_cache_of_another_dtype_is_read_as_the_queries() -> None:
    case = Case("mixed", starts=(4, 40), tokens=2)
    pages = make(case, torch.bfloat16)
    pages.query_BHTW = pages.query_BHTW.float()
    check(case, pages, attend_paged_triton(*pages.arguments(), **case.options), 1e-5)


def test_splits_fill_the_device_and_no_more() -> None:
    """By hand, for 132 multiprocessors with four programs each: 528 programs, shares of at least 128 keys."""
    assert choose_splits(64 * 3, 2048, resident=4) == 2
    assert choose_splits(3, 2048, resident=4) == 16
    assert choose_splits(3, 2**20, resident=4) == 128
    assert choose_splits(64 * 8, 2**20, resident=4) == 1
    assert choose_splits(1000, 2**20, resident=4) == 1
    assert choose_splits(1, 16, resident=4) == 1


@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("heads", [5, 16])
@pytest.mark.parametrize(("table", "page"), [(10, 16), (36, 8)])  # unsplit and split
def test_latent_attention(tokens: int, heads: int, table: int, page: int) -> None:
    generator = torch.Generator().manual_seed(0)
    latent_width, turned, starts = 24, 8, torch.tensor([0, 17, 150])
    width, rows = latent_width + turned, len(starts)
    positions_BT = starts[:, None] + torch.arange(tokens)
    query_BTHE = torch.randn(rows, heads, tokens, width, generator=generator).transpose(1, 2)
    table_BR = 1 + torch.randperm(rows * table, generator=generator).view(rows, table).int()
    entries_N1PE = torch.randn(1 + rows * table, 1, page, width, generator=generator)
    found = attend_latent_triton(
        query_BTHE, entries_N1PE, table_BR, positions_BT, latent_width=latent_width, scale=0.25
    )
    entry_BSE = entries_N1PE[table_BR.long(), 0].flatten(1, 2)
    seen_BTS = torch.arange(table * page) <= positions_BT[..., None]
    expected = mix_entries(query_BTHE.double(), entry_BSE.double(), seen_BTS, latent_width, 0.25)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)
