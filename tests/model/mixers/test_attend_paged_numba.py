"""The compiled loops of attention over pages against the definition, in one thread and in several."""

from __future__ import annotations

import pytest
import torch

from ingot.model.mixers import attend_paged_numba as module
from ingot.model.mixers.attend_paged_numba import attend_paged_numba, numba_can
from tests.model.mixers.paged_cases import CASES, Case, check, make


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_the_definition(case: Case) -> None:
    pages = make(case)
    found = attend_paged_numba(*pages.arguments(), sinks_H=pages.sinks_H, **case.options)
    check(case, pages, found, 5e-6)


def test_threads_divide_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of very different lengths, in three threads: exactly the same as in one."""
    case = Case("threads", starts=(0, 250, 3, 900, 40), tokens=2, width=64, value_width=64, sinks=True)
    pages = make(case)
    alone = attend_paged_numba(*pages.arguments(), sinks_H=pages.sinks_H, **case.options)
    check(case, pages, alone, 5e-6)
    monkeypatch.setattr(module, "NUMBERS_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(attend_paged_numba(*pages.arguments(), sinks_H=pages.sinks_H, **case.options), alone)


def test_large_scores() -> None:
    """Scores far apart: all weight on one key, and nothing overflows."""
    case = Case("large", starts=(30,), heads=2, key_heads=1)
    pages = make(case)
    pages.query_BHTW = pages.query_BHTW * 1000
    found = attend_paged_numba(*pages.arguments(), **case.options)
    keys, values = (
        stream[pages.table_BR[0].long()].transpose(0, 1).flatten(1, 2)[0, :31]
        for stream in (pages.keys_NKPW, pages.values_NKPV)
    )
    best = (pages.query_BHTW[0, :, 0] @ keys.mT).argmax(dim=-1)
    torch.testing.assert_close(found[0, :, 0], values[best], rtol=1e-6, atol=1e-6)


def test_what_it_can() -> None:
    pages = make(Case("few", starts=(4,), tokens=2))
    keys, values = pages.keys_NKPW, pages.values_NKPV
    assert numba_can(pages.query_BHTW, keys, values)
    assert not numba_can(pages.query_BHTW.bfloat16(), keys, values)
    assert not numba_can(pages.query_BHTW, keys.bfloat16(), values)
    assert not numba_can(pages.query_BHTW.expand(-1, -1, 2, -1).repeat(1, 1, 9, 1), keys, values)
    assert not numba_can(pages.query_BHTW.clone().requires_grad_(), keys, values)
