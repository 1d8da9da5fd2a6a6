"""Softmax attention over pages on the CPU, for few new tokens: compiled loops read the pages where they lie.

Gathering the pages first, to hand them to a library, would copy as many bytes as attention reads. The loops are in
attend_paged_loops.py; numba is imported at the first call.

Work is divided over torch's number of threads by rows, or where these are too few by (row, key head). The threads are our own:
numba's pools are either not safe with several callers or a second pool of OpenMP beside torch's. Small work stays in the calling
thread.

Shapes: B rows, H query heads, K key and value heads, T new tokens, N pages, P tokens of a page, R pages of a row, W key width, V
value width.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

MOST_TOKENS = 16  # beyond, libraries' matrix products win back what gathering costs
NUMBERS_PER_THREAD = 2**18  # of keys that a thread should read at least: some hundred microseconds


def numba_can(query_BHTW: Tensor, keys_NKPW: Tensor, values_NKPV: Tensor) -> bool:
    """Whether `attend_paged_numba` takes tensors like these."""
    return (
        query_BHTW.dtype == keys_NKPW.dtype == values_NKPV.dtype == torch.float32
        and query_BHTW.device.type == "cpu"
        and query_BHTW.shape[2] <= MOST_TOKENS
        and keys_NKPW.is_contiguous()
        and values_NKPV.is_contiguous()
        and not (torch.is_grad_enabled() and query_BHTW.requires_grad)
    )


def attend_paged_numba(
    query_BHTW: Tensor,
    keys_NKPW: Tensor,
    values_NKPV: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    *,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
) -> Tensor:
    """Attention [B, H, T, V], in memory ordered as [B, T, H, V]; keys up to each query's own position have been written."""
    loops = _loops()
    rows, heads, tokens, width = query_BHTW.shape
    count, key_heads, page, value_width = values_NKPV.shape
    query_BTHW, table_BR, positions_BT = query_BHTW.transpose(1, 2).contiguous(), table_BR.int(), positions_BT.long()
    table_BR, positions_BT = table_BR.contiguous(), positions_BT.contiguous()
    if sinks_H is not None:
        sinks_H = sinks_H.float()
    out_BTHV = torch.empty(rows, tokens, heads, value_width)
    addresses = (
        query_BTHW.data_ptr(),
        keys_NKPW.data_ptr(),
        values_NKPV.data_ptr(),
        table_BR.data_ptr(),
        positions_BT.data_ptr(),
        0 if sinks_H is None else sinks_H.data_ptr(),
        out_BTHV.data_ptr(),
    )
    shape = (rows, tokens, heads, key_heads, count, page, table_BR.shape[1], width, value_width)
    window, chunk, softcap = window or 0, chunk or 0, float(softcap or 0)
    span = loops.longest_span(addresses[4], rows, tokens, window, chunk)
    reads = rows * span * key_heads * (width + value_width)
    workers = max(1, min(torch.get_num_threads(), rows * key_heads, reads // NUMBERS_PER_THREAD))
    together = key_heads if rows >= workers else 1  # a page's heads lie side by side: best read by one thread
    room = loops.room_for(tokens * heads // key_heads * together, width, value_width, span)

    def work(worker: int) -> None:
        own = torch.empty(room)
        loops.attend_rows(
            addresses, shape, together, own.data_ptr(), span, float(scale), window, chunk, softcap, worker, workers
        )

    if workers == 1:
        work(0)
    else:
        others = [_threads(workers, os.getpid()).submit(work, worker) for worker in range(1, workers)]
        work(0)
        for other in others:
            other.result()
    return out_BTHV.transpose(1, 2)


@cache
def _loops() -> ModuleType:
    from ingot.model.mixers import attend_paged_loops

    return attend_paged_loops


@cache
def _threads(workers: int, process: int) -> ThreadPoolExecutor:
    """Kept from call to call: a new thread costs more than a small attention. A forked process needs its own."""
    return ThreadPoolExecutor(workers - 1, thread_name_prefix="attention")
