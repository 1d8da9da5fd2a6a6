"""Captures a CUDA graph that owns the scratch memory of its matrix products.

cuBLAS has a workspace for each stream, allocated at the first product and kept in a table of the process. A graph holds the
address that was there when it was captured: perhaps memory of an older graph's pool. When the table is emptied, as CUDA graphs of
torch.compile do whenever they record, that memory is freed, and the next replay is an illegal memory access. So the table is
emptied before a capture: then the workspace is allocated in the graph's own pool, which lives as long as the graph. It is emptied
again after the capture: nobody else gets memory of that pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capturing(
    graph: torch.cuda.CUDAGraph, pool: Any = None, stream: torch.cuda.Stream | None = None, *, errors: str = "global"
) -> Iterator[None]:
    """What is launched in this context becomes `graph`. `errors`: torch's capture_error_mode."""
    torch._C._cuda_clearCublasWorkspaces()
    try:
        with torch.cuda.graph(graph, pool, stream, capture_error_mode=errors):
            yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()
