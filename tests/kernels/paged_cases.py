"""Caches in scattered pages with known content, and attention over them by the definition in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ingot.kernels.attention.attend_plain import attend_plain
from ingot.kernels.attention.attention_options import AttentionOptions


@dataclass(frozen=True)
class Case:
    """Rows whose last tokens stand at `starts` + `tokens` − 1."""

    name: str
    starts: tuple[int, ...]  # the position of each row's first new token
    tokens: int = 1
    heads: int = 6
    key_heads: int = 2
    width: int = 16
    value_width: int = 16
    page: int = 16
    window: int | None = None
    chunk: int | None = None
    softcap: float | None = None
    sinks: bool = False
    ring: bool = False  # each row has only as many pages as its window, or chunk, and the new tokens need
    table: int = 0  # pages of a table, where they shall be more than the longest row needs
    shared: int = 0  # pages that all rows begin with
    padding: int = 0  # tokens at the end of every row that stand for nothing: at the last position of the table

    def __str__(self) -> str:
        return self.name

    def options(self, sinks_H: Tensor | None) -> AttentionOptions:
        return AttentionOptions(0.3, self.window, self.chunk, self.softcap, sinks_H)


@dataclass
class Pages:
    """The arguments of attention over pages, and what it is to give."""

    query_BHTW: Tensor
    keys_NKPW: Tensor
    values_NKPV: Tensor
    table_BR: Tensor
    positions_BT: Tensor
    sinks_H: Tensor | None
    expected_BHTV: Tensor  # float64; the last `padding` tokens mean nothing

    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.query_BHTW, self.keys_NKPW, self.values_NKPV, self.table_BR, self.positions_BT


CASES = [
    Case("one token, uneven rows", starts=(0, 5, 15, 16, 70)),
    Case("three tokens", starts=(0, 30, 61), tokens=3),
    Case("forty tokens", starts=(0, 9, 50), tokens=40),
    Case("pages of eight", starts=(0, 7, 41), tokens=3, page=8),
    Case("one head per key head", starts=(3, 20), heads=2, tokens=2),
    Case("all heads on one key head, odd widths", starts=(3, 40), heads=5, key_heads=1, width=20, value_width=12),
    Case("window", starts=(0, 6, 50), tokens=3, window=7),
    Case("window, forty tokens", starts=(0, 50), tokens=40, window=9),
    Case("window on a ring that has wrapped", starts=(2, 100, 333), window=20, ring=True),
    Case("window, many tokens on a ring", starts=(0, 90), tokens=40, window=20, ring=True, page=8),
    Case("chunk", starts=(0, 31, 32, 63), tokens=3, chunk=32),
    Case("chunk on a ring that has wrapped", starts=(95, 96, 200), tokens=2, chunk=24, ring=True, page=8),
    Case("softcap", starts=(0, 40), tokens=2, softcap=1.5),
    Case("sinks", starts=(0, 40), tokens=2, sinks=True),
    Case("sinks, window, softcap", starts=(5, 60), tokens=3, sinks=True, window=12, softcap=2.0),
    Case("split", starts=(0, 17, 130, 400), table=64),
    Case("split, three tokens, sinks", starts=(0, 130, 300), tokens=3, table=64, sinks=True),
    Case("split, window", starts=(0, 130, 700), table=64, window=300),
    Case("split, seven tokens", starts=(0, 300), tokens=7, table=32),
    Case("shared pages", starts=(150, 200, 301), shared=9),
    Case("shared pages, a row that ends in them", starts=(70, 201), tokens=3, shared=10),
    Case("shared pages, window", starts=(160, 215, 330), shared=10, tokens=2, window=100),
    Case("shared pages, chunk, one head per key head", starts=(160, 191), shared=10, heads=2, chunk=96),
    Case("shared pages, sinks", starts=(160, 191), shared=10, sinks=True),
    Case("padding", starts=(0, 20), tokens=6, padding=2, table=4),
    Case("padding far behind a window", starts=(0, 20), tokens=6, padding=2, table=12, window=5),
]


def make(case: Case, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0) -> Pages:
    """Random keys, their pages scattered; all places that no query may see hold numbers that would show."""
    generator = torch.Generator().manual_seed(seed)
    rows, page, real = len(case.starts), case.page, case.tokens - case.padding
    longest = max(case.starts) + real
    pages = max(case.table, -(-longest // page))
    if case.ring:
        pages = -(-((case.window or case.chunk or 0) + case.tokens) // page) + 1
    order = 1 + torch.randperm(rows * pages, generator=generator)
    table_BR = order.view(rows, pages).int()
    sizes = (case.key_heads, page, case.width), (case.key_heads, page, case.value_width)
    stale_k, stale_v = (torch.full((1 + rows * pages, *size), 1000.0, dtype=torch.float64) for size in sizes)
    key_BKSW, value_BKSV = (
        torch.randn(rows, case.key_heads, longest, size, generator=generator, dtype=torch.float64).to(dtype).double()
        for size in (case.width, case.value_width)
    )
    if case.shared:
        table_BR[:, : case.shared] = table_BR[0, : case.shared]
        for each in (key_BKSW, value_BKSV):
            each[:, :, : case.shared * page] = each[0, :, : case.shared * page]
    query_BTHW = torch.randn(rows, case.tokens, case.heads, case.width, generator=generator, dtype=torch.float64)
    query_BTHW = query_BTHW.to(dtype).double()
    sinks_H = torch.randn(case.heads, generator=generator, dtype=torch.float64).to(dtype) if case.sinks else None
    for row, start in enumerate(case.starts):
        for position in range(start + real):  # later ones write over earlier ones of a ring
            at = int(table_BR[row, position // page % pages])
            stale_k[at, :, position % page] = key_BKSW[row, :, position]
            stale_v[at, :, position % page] = value_BKSV[row, :, position]
    positions_BT = torch.tensor(case.starts)[:, None] + torch.arange(case.tokens)
    query, key = positions_BT[:, None, :, None], torch.arange(longest)
    visible = (key <= query) & (key < torch.tensor(case.starts)[:, None, None, None] + real)
    if case.window is not None:
        visible &= key > query - case.window
    if case.chunk is not None:
        visible &= key >= query // case.chunk * case.chunk
    expected = attend_plain(
        query_BTHW.transpose(1, 2),
        key_BKSW,
        value_BKSV,
        visible,
        case.options(None if sinks_H is None else sinks_H.double()),
    )
    positions_BT[:, real:] = pages * page - 1 if case.padding else positions_BT[:, real:]
    return Pages(
        query_BTHW.to(dtype).to(device).transpose(1, 2),  # as a projection gives it: not contiguous
        stale_k.to(dtype).to(device),
        stale_v.to(dtype).to(device),
        table_BR.to(device),
        positions_BT.to(device),
        None if sinks_H is None else sinks_H.to(device),
        expected.to(device),
    )


def check(case: Case, pages: Pages, found_BHTV: Tensor, tolerance: float) -> None:
    """The same as the definition, in the layout that is promised, and finite everywhere."""
    real = case.tokens - case.padding
    assert found_BHTV.dtype == pages.query_BHTW.dtype
    assert found_BHTV.transpose(1, 2).is_contiguous()
    assert bool(found_BHTV.isfinite().all())
    difference = (found_BHTV.double() - pages.expected_BHTV)[:, :, :real]
    assert float(difference.abs().max()) < tolerance, float(difference.abs().max())
