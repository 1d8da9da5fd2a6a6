"""Speed and memory of sparse attention (DSA) beside dense latent attention, for training and for decoding.

One layer with DeepSeek-V3.2's widths and fewer heads. Dense is the fastest path that Ingot has for it: expanded and by torch's
fused attention over whole rows, absorbed and by the kernel over pages in decoding. Sparse is timed in its parts (the choice of
keys, attention to them, the indexer's losses) and together. Projections before and after attention are the same in both and left
out of training's numbers; a decoding step is a whole layer, one of ten that share their positions, captured in a CUDA graph.

    python benchmarks/sparse.py [--device cpu|cuda] [--heads N] [--lengths N …] [--tune [PART …]] [--check] [--training]

--tune tries other tiles for each kernel (forward; score, query, entry of the backward pass; choice) and prints them as they
come, the one in use first; a tile takes 5 to 10 s to compile. --training leaves out decoding. --check compares the kernels with
the definition in float32 on a short row before anything is timed. A case that fails prints why, and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ingot.kernels.launch import has_triton
from ingot.kernels.sparse import index_divergence, select_keys, sparse_attention, sparse_tile
from ingot.kernels.sparse.sparse_tile import SparseTile
from ingot.model.context import Context
from ingot.model.mixers.cache import CacheShape
from ingot.model.mixers.indexer import Index
from ingot.model.mixers.mixer import Site
from ingot.model.mixers.mla import Mla, MlaConfig
from ingot.model.mixers.sparse import chosen_index_divergence, dense_index_divergence, select
from ingot.model.norm import NormConfig
from ingot.model.record import Record

FAILURES: tuple[type[Exception], ...] = (RuntimeError,)
if has_triton():
    from triton import TritonError

    FAILURES = (RuntimeError, TritonError)  # too many registers or too much shared memory for a tile

SHAPES: dict[str, dict[str, Any]] = {
    "cuda": {
        "width": 4096,
        "query_latent": 1536,
        "key_value_latent": 512,
        "content_width": 128,
        "rope_width": 64,
        "value_width": 128,
        "sparse": {"heads": 64, "head_width": 128, "keep": 2048},
    },
    "cpu": {
        "width": 128,
        "query_latent": 64,
        "key_value_latent": 32,
        "content_width": 16,
        "rope_width": 16,
        "value_width": 16,
        "sparse": {"heads": 8, "head_width": 16, "keep": 32},
    },
}
LENGTHS = {"cuda": [4096, 16384, 32768, 65536], "cpu": [256, 512]}
PASTS = {"cuda": [32768, 65536], "cpu": [256]}
BATCHES = {"cuda": [1, 8, 32], "cpu": [1, 2]}
LAYERS = 10  # of a decoding step


def make_layer(device: str, heads: int, *, sparse: bool) -> Mla:
    shape = {**SHAPES[device], "kind": "mla", "heads": heads}
    width = shape.pop("width")
    if not sparse:
        shape.pop("sparse")
    torch.manual_seed(0)
    layer = Mla(MlaConfig.model_validate(shape), Site(width=width, layer=0, depth=1, norm=NormConfig()))
    for parameter in layer.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    return layer.to(device, torch.bfloat16 if device == "cuda" else torch.float32)


class Inputs:
    """What attention reads, as leaves of the graph: queries and entries of all heads, and the indexer's part."""

    def __init__(self, layer: Mla, length: int, device: str) -> None:
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(1, length, layer.site.width, generator=generator).to(device, layer.output.weight.dtype)
        self.context = Context(torch.arange(length, device=device)[None])
        with torch.no_grad():
            query, latent = layer._queries(x, self.context)
            entry = layer._entries(x, self.context)
            index = layer._index(x, latent, self.context)
        assert index is not None
        self.query, self.entry = query.requires_grad_(), entry.requires_grad_()
        self.index = Index(*(each.requires_grad_() for each in index))
        self.gradient = torch.randn(1, 1, length, 1, generator=generator).to(device, query.dtype)

    def backward(self, mixed: Tensor) -> None:
        mixed.backward(self.gradient.expand(mixed.shape))


def milliseconds(run: Callable[[], object], device: str, repeats: int) -> float:
    """The median time, after one run that warms up."""
    run()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begin))
    return sorted(times)[len(times) // 2]


def gibibytes(run: Callable[[], object], device: str) -> float:
    """What `run` needs at its peak beyond what was there."""
    if device != "cuda":
        return 0.0
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def training_cases(dense: Mla, sparse: Mla, inputs: Inputs) -> dict[str, tuple[Callable[[], object], bool]]:
    """By name: a pass, and whether it needs gradients."""
    context, index, keep = inputs.context, inputs.index, sparse.config.sparse.keep  # type: ignore[union-attr]
    selected = select(index, keep, context)
    latent_width, scale = sparse.config.key_value_latent, sparse.scale

    def dense_forward() -> Tensor:
        return dense.attend_expanded(inputs.query, inputs.entry, context)

    def choose() -> Tensor:
        return select(index, keep, context)

    def sparse_forward() -> Tensor:
        return sparse.attend_selected(inputs.query, inputs.entry, selected, context)[0]

    def loss(selected: Tensor = selected) -> Tensor:
        with torch.no_grad():
            query = sparse._absorb(inputs.query)
            given = (query, inputs.entry, selected, sparse.options)
            sums = sparse_attention.sparse_attention(*given, latent_width=latent_width)[1]
        target = index_divergence.mean_probabilities(
            query, inputs.entry, selected, sums, latent_width=latent_width, scale=scale
        )
        return chosen_index_divergence(index, selected, target, context)

    def step() -> None:
        """As the layer's forward pass with a Record, and its backward pass."""
        context.record = Record()
        chosen = choose()
        mixed, target = sparse.attend_selected(inputs.query, inputs.entry, chosen, context)
        context.record = None
        assert target is not None
        total = chosen_index_divergence(index, chosen, target, context)
        torch.autograd.backward([mixed, total], [inputs.gradient.expand(mixed.shape), None])

    def warm_up() -> None:
        """The indexer's loss over all keys; attention's own passes are those of dense attention."""
        with torch.no_grad():
            key, _ = sparse._expand(inputs.entry)
        dense_index_divergence(index, inputs.query, key, context, scale, sparse.all_heads).backward()

    def both() -> None:
        choose()
        sparse_forward()

    return {
        "dense, forward": (dense_forward, False),
        "choice": (choose, False),
        "attention, forward": (sparse_forward, False),
        "sparse, forward": (both, False),
        "dense, forward and backward": (lambda: inputs.backward(dense_forward()), True),
        "attention, forward and backward": (lambda: inputs.backward(sparse_forward()), True),
        "attention once more and loss, forward and backward": (lambda: loss().backward(), True),
        "sparse with loss, forward and backward": (step, True),
        "loss of the dense warm-up, forward and backward": (warm_up, True),
    }


PAIRS = (
    ("forward", "dense, forward", "sparse, forward"),
    ("forward and backward", "dense, forward and backward", "sparse with loss, forward and backward"),
)


def time_training(device: str, heads: int, lengths: Iterable[int]) -> list[dict[str, Any]]:
    results = []
    dense, sparse = (make_layer(device, heads, sparse=each) for each in (False, True))
    for length in lengths:
        try:
            inputs = Inputs(sparse, length, device)
            cases = training_cases(dense, sparse, inputs)
        except FAILURES as error:
            print(f"{length:7} tokens: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        found: dict[str, float] = {}
        for name, (run, needs_gradients) in cases.items():
            try:
                with torch.set_grad_enabled(needs_gradients):
                    found[name] = milliseconds(run, device, 5 if length <= 32768 else 3)
                    memory = gibibytes(run, device)
                results.append({"tokens": length, "case": name, "ms": round(found[name], 2), "GiB": round(memory, 2)})
                print(f"{length:7} tokens  {name:52} {found[name]:9.2f} ms {memory:7.2f} GiB", flush=True)
            except FAILURES as error:
                print(f"{length:7} tokens  {name:52} {type(error).__name__}: {str(error)[:300]}", flush=True)
        for name, slow, fast in PAIRS:
            if slow in found and fast in found:
                print(f"{length:7} tokens  {name}: sparse is {found[slow] / found[fast]:.2f} × as fast as dense")
        del inputs, cases
    return results


@torch.no_grad()
def time_decoding(device: str, heads: int, pasts: Iterable[int], batches: Iterable[int]) -> list[dict[str, Any]]:
    """A step of one token per row, all rows with the same past."""
    results = []
    for past in pasts:
        for batch in batches:
            speeds = {}
            for name in ("dense", "sparse"):
                try:
                    speeds[name] = decoding_step(
                        make_layer(device, heads, sparse=name == "sparse"), batch, past, device
                    )
                except FAILURES as error:
                    print(f"decoding, past {past}, batch {batch}, {name}: {type(error).__name__}: {str(error)[:300]}")
            cells = "".join(f"  {name} {value:8.3f} ms" for name, value in speeds.items())
            ratio = f"  {speeds['dense'] / speeds['sparse']:.2f} ×" if len(speeds) == 2 else ""
            print(f"decoding, past {past:6}, batch {batch:3}{cells}{ratio}", flush=True)
            results.append({"past": past, "batch": batch, **{name: round(value, 4) for name, value in speeds.items()}})
    return results


def decoding_step(layer: Mla, batch: int, past: int, device: str) -> float:
    dtype = layer.output.weight.dtype
    cache = layer.make_cache(CacheShape(slots=batch, length=past + 16), dtype, torch.device(device))
    for tensor in cache.tensors():
        tensor.normal_()
    x = torch.randn(batch, 1, layer.site.width, device=device, dtype=dtype)
    positions = torch.full((batch, 1), past, device=device)
    slots = torch.arange(batch, device=device)

    def step() -> None:
        """As LAYERS layers of a model: positions and addresses are made once for all."""
        context = Context(positions, slots_B=slots, reach=past + 16)
        for _ in range(LAYERS):
            layer(x, context, cache)

    if device != "cuda":
        return milliseconds(step, device, 5) / LAYERS
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return milliseconds(graph.replay, device, 10) / LAYERS


# ---- other tiles


# heads or queries, entries or keys, (of query and entry: channels,) warps, stages
TILES: dict[str, tuple[tuple[int, ...], ...]] = {
    "forward": ((64, 64, 8, 3), (64, 32, 8, 5), (64, 64, 8, 2), (32, 64, 8, 5), (32, 32, 8, 5)),
    "score": ((32, 64, 4, 2), (16, 64, 4, 2), (32, 64, 8, 2)),
    "query": (
        (128, 64, 256, 8, 3),
        (128, 64, 128, 8, 4),
        (64, 64, 256, 4, 3),
    ),
    "entry": (
        (32, 128, 256, 8, 4),
        (32, 128, 128, 4, 3),
        (32, 128, 128, 4, 2),
        (32, 64, 128, 4, 3),
        (32, 256, 128, 8, 3),
    ),
    "choice": ((128, 128, 8, 3), (128, 128, 8, 4), (64, 256, 8, 3)),
}


def tune(device: str, heads: int, length: int, parts: Iterable[str]) -> None:
    """Times kernels with a few tiles on one row."""
    from ingot.kernels.sparse import select_keys_kernel, sparse_gradients_kernel
    from ingot.kernels.sparse.select_keys_kernel import ScoreTile
    from ingot.kernels.sparse.sparse_gradients_kernel import ProductTile

    sparse = make_layer(device, heads, sparse=True)
    cases = training_cases(sparse, sparse, Inputs(sparse, length, device))
    for part in parts:
        if part == "choice":
            scores = [ScoreTile(*tile) for tile in TILES[part]]
            try_tiles(part, select_keys_kernel, "choose_score_tile", scores, cases["choice"][0], device)
            continue
        limited = [(min(tile[0], heads), *tile[1:]) for tile in TILES[part]]
        if part == "forward":
            tiles = [SparseTile(*tile) for tile in limited]
            try_tiles(part, sparse_tile, "choose_forward_tile", tiles, cases["attention, forward"][0], device)
            continue
        products = [(SparseTile if part == "score" else ProductTile)(*tile) for tile in limited]
        both = cases["attention, forward and backward"][0]
        try_tiles(part, sparse_gradients_kernel, f"choose_{part}_tile", products, both, device, needs_gradients=True)


def try_tiles(
    title: str,
    module: Any,
    chooser: str,
    tiles: Iterable[Any],
    run: Callable[[], object],
    device: str,
    needs_gradients: bool = False,
) -> None:
    original = getattr(module, chooser)
    for tile in dict.fromkeys(tiles):
        setattr(module, chooser, lambda *given, tile=tile: tile)
        try:
            with torch.set_grad_enabled(needs_gradients):
                print(f"tune {title}: {milliseconds(run, device, 3):9.2f} ms  {tile}", flush=True)
        except FAILURES as error:
            print(f"tune {title}: {tuple(tile)}: {type(error).__name__}: {str(error)[:160]}", flush=True)
        finally:
            setattr(module, chooser, original)


def check(device: str, heads: int) -> None:
    """The kernels in bfloat16 against the definitions in float32, on the same choice of keys."""
    layer = make_layer(device, min(heads, 32), sparse=True)
    inputs = Inputs(layer, 3000 if device == "cuda" else 100, device)
    assert layer.config.sparse is not None
    chosen = select(inputs.index, layer.config.sparse.keep, inputs.context)
    mixed = layer.attend_selected(inputs.query, inputs.entry, chosen, inputs.context)[0]
    inputs.backward(mixed)
    query, entry = (each.detach().float().requires_grad_() for each in (inputs.query, inputs.entry))
    exact = layer.float()
    wanted = exact._values(
        sparse_attention.sparse_attention_definition(
            exact._absorb(query), entry, chosen, exact.options, latent_width=exact.config.key_value_latent
        )
    )
    wanted.backward(inputs.gradient.float().expand(wanted.shape))
    for name, one, other in (
        ("values", mixed, wanted),
        ("gradient of queries", inputs.query.grad, query.grad),
        ("gradient of entries", inputs.entry.grad, entry.grad),
    ):
        assert one is not None and other is not None
        print(
            f"check: {name:20} off by {float((one.float() - other).norm().detach() / other.norm().detach()):.1e} of their norm"
        )
    scores = select_keys.index_scores(*(each.detach().float() for each in inputs.index))
    taken = scores.gather(2, chosen.long().clamp_min(0)).masked_fill(chosen < 0, torch.inf).amin(-1)
    last = scores.masked_fill(torch.ones_like(scores[0]).triu(1).bool(), -torch.inf).sort(-1, descending=True).values
    worst = last[..., layer.config.sparse.keep - 1]
    gap = (worst - taken)[:, layer.config.sparse.keep :].max() / scores.abs().max()
    print(f"check: the worst chosen score is at most {float(gap):.1e} of the largest below the definition's")


def main() -> None:
    parser = argparse.ArgumentParser(description="Sparse against dense latent attention.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--heads", type=int, default=None, help="attention heads (32; 4 on a CPU)")
    parser.add_argument("--lengths", type=int, nargs="*", default=None, help="tokens of a row")
    parser.add_argument(
        "--tune", nargs="*", choices=list(TILES), default=None, help="only other tiles, on a row of 16,384 tokens"
    )
    parser.add_argument("--training", action="store_true", help="without decoding")
    parser.add_argument("--check", action="store_true", help="compare with the definition first")
    options = parser.parse_args()
    device, heads = options.device, options.heads or (32 if options.device == "cuda" else 4)
    print(f"{SHAPES[device]}, {heads} heads, {device}")
    if options.check:
        check(device, heads)
    if options.tune is not None:
        tune(device, heads, 16384 if device == "cuda" else 256, options.tune or TILES)
        return
    lengths = options.lengths if options.lengths is not None else LENGTHS[device]
    training = time_training(device, heads, lengths)
    decoding = [] if options.training else time_decoding(device, heads, PASTS[device], BATCHES[device])
    print(
        json.dumps(
            {"benchmark": "sparse", "device": device, "heads": heads, "training": training, "decoding": decoding}
        )
    )


if __name__ == "__main__":
    main()
