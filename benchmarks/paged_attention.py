"""Speed of attention over pages: one new token per row, beside torch's own attention on contiguous keys.

On a CUDA device in bfloat16, inside captured graphs, as decoding runs; on the CPU in float32, where ours is the definition (pages
are copied together), in seconds of the processor. The
share of the bandwidth is the keys and values, each read once, by the time, of 4.3 TB/s (what an H200 reads at best). The peer has
the same keys in one contiguous tensor per row, all rows equally long: it needs no table and no mask.

    python benchmarks/paged_attention.py [--device cpu|cuda] [--threads N] [--sweep]

--sweep tries other tiles on the device and prints each: the table of `choose_tile` was chosen so.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ingot.kernels.attention import attend_latent as latent_module
from ingot.kernels.attention import attend_paged as paged_module
from ingot.kernels.attention.attend_latent import attend_latent
from ingot.kernels.attention.attend_paged import PageTile, attend_paged
from ingot.kernels.attention.attention_options import AttentionOptions

BANDWIDTH = 4.3e12  # bytes per second
PAGE = 16


@dataclass(frozen=True)
class Shape:
    """Heads of a model."""

    name: str
    heads: int
    key_heads: int
    width: int


SMALL = Shape("SmolLM2-135M", 9, 3, 64)
LARGE = Shape("Llama-3-8B", 32, 8, 128)


def make(shape: Shape, rows: int, keys: int, tokens: int, device: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Queries at the end of rows of `keys` keys, in pages out of order, with room for as many keys again."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    pages, used = -(-2 * keys // PAGE), -(-keys // PAGE)
    query = torch.randn(rows, tokens, shape.heads, shape.width, device=device, dtype=dtype).transpose(1, 2)
    count = 1 + rows * used
    keys_N, values_N = torch.randn(2, count, shape.key_heads, PAGE, shape.width, device=device, dtype=dtype)
    table = torch.zeros(rows, pages, dtype=torch.int32, device=device)
    table[:, :used] = 1 + torch.randperm(rows * used, device=device).view(rows, used)
    positions = (keys - tokens + torch.arange(tokens, device=device)).expand(rows, tokens).contiguous()
    return query, keys_N, values_N, table, positions


def seconds(function: Callable[[], object], device: str) -> float:
    """The best of several runs of many calls."""
    return graph_seconds(function) if device == "cuda" else processor_seconds(function)


def processor_seconds(function: Callable[[], object]) -> float:
    function()
    start = time.process_time()
    function()
    calls = max(1, int(0.05 / max(time.process_time() - start, 1e-6)))
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, (time.process_time() - start) / calls)
    return best


def graph_seconds(function: Callable[[], object], calls: int = 20) -> float:
    """One call among many in a captured graph."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    best = float("inf")
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / 1e3 / calls)
    return best


def contiguous(streams: Tensor, table: Tensor, keys: int) -> Tensor:
    """Keys [B, K, S, W] copied together."""
    used = -(-keys // PAGE)
    return streams[table[:, :used].long()].transpose(1, 2).flatten(2, 3)[:, :, :keys].contiguous()


def compare(shape: Shape, rows: int, keys: int, device: str) -> None:
    query, key_pages, value_pages, table, positions = make(shape, rows, keys, 1, device)
    scale = shape.width**-0.5
    given = (query, key_pages, value_pages, table, positions, AttentionOptions(scale), keys)
    ours = seconds(partial(attend_paged, *given), device)
    key, value = (contiguous(streams, table, keys) for streams in (key_pages, value_pages))
    peer_call = partial(scaled_dot_product_attention, query, key, value, scale=scale, enable_gqa=True)
    peer = seconds(peer_call, device)
    found, wanted = attend_paged(*given), peer_call()
    difference = float((found.float() - wanted.float()).norm() / wanted.float().norm())
    size = 2 * rows * keys * shape.key_heads * shape.width * query.element_size()
    share = f"{size / ours / BANDWIDTH:8.0%}" if device == "cuda" else f"{size / ours / 1e9:6.1f} GB/s"
    print(
        f"{shape.name:14} {rows:4} rows {keys:6} keys {ours * 1e6:10.1f} µs {share}   torch {peer * 1e6:10.1f} µs"
        f"   torch/ours {peer / ours:5.2f}   differ by {difference:.1e}",
        flush=True,
    )


def compare_latent(heads: int, rows: int, keys: int) -> None:
    """DeepSeek-V3's entries, 512 + 64 wide; the peer sees one key head with values as wide as the keys."""
    shape = Shape("", heads, 1, 576)
    query, entries, _, table, positions = make(shape, rows, keys, 1, "cuda")
    asked = query.transpose(1, 2)
    given = (asked, entries, table, positions, AttentionOptions(0.04))
    ours = graph_seconds(partial(attend_latent, *given, latent_width=512, reach=keys))
    key = contiguous(entries, table, keys)
    peer = graph_seconds(partial(scaled_dot_product_attention, asked, key, key, scale=0.04))  # heads as queries
    share = rows * keys * 576 * 2 / ours / BANDWIDTH
    print(
        f"latent {heads:3} heads {rows:4} rows {keys:6} keys {ours * 1e6:10.1f} µs {share:8.0%}"
        f"   torch {peer * 1e6:10.1f} µs   torch/ours {peer / ours:5.2f}",
        flush=True,
    )


def sweep() -> None:
    """Other tiles, for decoding and for a piece of a prompt: the ten best of each."""
    cases = [(shape, rows, keys, 1) for shape in (SMALL, LARGE) for rows, keys in ((64, 300), (64, 2000), (1, 16000))]
    cases += [(shape, 4, 2000, 512) for shape in (SMALL, LARGE)]
    for shape, rows, keys, tokens in cases:
        arguments = make(shape, rows, keys, tokens, "cuda")
        call = partial(attend_paged, *arguments, AttentionOptions(shape.width**-0.5), keys)
        heights, residents = ((16,), (2, 3, 4, 6, 8)) if tokens == 1 else ((64, 128), (1,))
        print(f"{shape.name} {rows} rows {keys} keys {tokens} tokens: as chosen {graph_seconds(call) * 1e6:.1f} µs")
        times: dict[PageTile, float] = {}
        for tile in map(PageTile._make, itertools.product(heights, (32, 64, 128), (1, 2, 4, 8), (3, 5, 7), residents)):
            with_tile(paged_module, "choose_tile", tile, call, times)
        report(times)
    for heads, rows, keys in ((16, 64, 2000), (128, 64, 2000), (128, 4, 16000)):
        query, entries, _, table, positions = make(Shape("", heads, 1, 576), rows, keys, 1, "cuda")
        given = (query.transpose(1, 2), entries, table, positions, AttentionOptions(0.04))
        call = partial(attend_latent, *given, latent_width=512, reach=keys)
        print(f"latent {heads} heads {rows} rows {keys} keys: as chosen {graph_seconds(call) * 1e6:.1f} µs")
        times = {}
        for tile in map(PageTile._make, itertools.product((16, 32, 64), (16, 32, 64), (4, 8), (2, 3, 5), (1, 2))):
            with_tile(latent_module, "choose_latent_tile", tile, call, times)
        report(times)


def with_tile(
    module: object, name: str, tile: PageTile, call: Callable[[], object], times: dict[PageTile, float]
) -> None:
    """Time `call` with a tile, unless it does not fit."""
    from triton.runtime.errors import OutOfResources

    chosen = getattr(module, name)
    setattr(module, name, lambda *_: tile)
    try:
        times[tile] = graph_seconds(call)
    except OutOfResources:
        pass
    finally:
        setattr(module, name, chosen)


def report(times: dict[PageTile, float]) -> None:
    for tile in sorted(times, key=lambda tile: times[tile])[:10]:
        print(f"    {times[tile] * 1e6:10.1f} µs  {tile}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Attention over pages against torch's on contiguous keys.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    parser.add_argument("--sweep", action="store_true", help="time other tiles (CUDA, minutes)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.sweep:
        return sweep()
    if options.device == "cpu":
        for rows, keys in itertools.product((1, 8, 64), (100, 300, 2000)):
            compare(SMALL, rows, keys, "cpu")
        return
    for shape, keys in itertools.product((SMALL, LARGE), (300, 2000, 16000)):
        compare(shape, 64, keys, "cuda")
    for heads, keys in itertools.product((16, 128), (300, 2000)):
        compare_latent(heads, 64, keys)


if __name__ == "__main__":
    main()
