"""A captured graph owns the workspace of cuBLAS: it survives when others empty cuBLAS's table and older graphs are gone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.kernels.capture import capturing


@pytest.mark.parametrize("fails", [False, True])
def test_the_table_is_emptied_before_and_after(monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    done: list[Any] = []

    @contextmanager
    def graph(*given: Any, **options: Any) -> Iterator[None]:
        done.append((given, options))
        try:
            yield
        finally:
            done.append("captured")

    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: done.append("emptied"), raising=False)
    made: Any = object()
    try:
        with capturing(made, "pool", errors="thread_local"):
            if fails:
                raise RuntimeError("in the middle")
    except RuntimeError:
        assert fails
    assert done == ["emptied", ((made, "pool", None), {"capture_error_mode": "thread_local"}), "captured", "emptied"]


def captured_product(x: Tensor, weight: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    graph = torch.cuda.CUDAGraph()
    with capturing(graph, torch.cuda.graph_pool_handle()):
        out = x @ weight
    return graph, out


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_older_graph_and_the_table_can_go() -> None:
    """Sums over many channels of few rows are divided among programs, which add up in the workspace."""
    x, weight = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in ((8, 16_384), (16_384, 256)))
    expected = x @ weight
    old = captured_product(x, weight)
    graph, out = captured_product(x, weight)
    del old
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=1.0)
