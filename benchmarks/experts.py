"""Speed of the routed experts: ours (grouped), our reference loop, and transformers' three implementations, same weights.

Cases: a training pass (forward and backward) and a forward pass over many tokens, and the few tokens of decoding steps. Every
implementation gets the same random choices of experts, skewed as real ones are, and must give the same output. They take
turns, so that a busy machine is busy for all; the best time of several rounds counts. Unit: tokens per second of one layer.

Decoding is STEPS steps with choices of their own, as those of a model's layers are, so that no step finds its experts in a cache.
On a GPU it is timed twice: launched from Python, and as a captured graph, with transformers' `batched_mm` also compiled.

    python benchmarks/experts.py [--device cpu|cuda] [--cases train,forward,decode] [--tokens 1,8] [--quick] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.experts import Experts

TRANSFORMERS = ("grouped_mm", "batched_mm", "eager")
LARGEST_BATCHED = 64  # batched_mm copies an expert's weights for every choice: it is meant for decoding


@dataclass(frozen=True)
class Shape:
    """A layer of experts."""

    name: str
    width: int
    inner: int
    experts: int
    active: int


SHAPES = {
    "cpu": [Shape("small", 256, 128, 32, 4), Shape("many experts", 128, 64, 128, 8)],
    "cuda": [Shape("OLMoE-1B-7B", 2048, 1024, 64, 8), Shape("Qwen3-30B-A3B", 2048, 768, 128, 8)],
}
MANY = {"cpu": 1024, "cuda": 16384}  # tokens
FEW = {"cpu": (1, 8), "cuda": (1, 2, 4, 8, 16, 64)}
STEPS = 16
CAPTURED = ("ours", "transformers grouped_mm", "transformers batched_mm", "transformers batched_mm, compiled")
CASES = ("train", "forward", "decode")


Given = tuple[Tensor, Tensor, Tensor]


def make_choices(shape: Shape, tokens: int, device: str, dtype: torch.dtype, seed: int = 0) -> Given:
    """Inputs, K different experts of each token (some experts are liked more), weights that sum to one."""
    generator = torch.Generator().manual_seed(seed)
    liking = torch.randn(tokens, shape.experts, generator=generator) + 0.5 * torch.randn(
        shape.experts, generator=generator
    )
    weights, indices = liking.softmax(-1).topk(shape.active)
    x = torch.randn(tokens, shape.width, generator=generator)
    return x.to(device, dtype), indices.to(device), (weights / weights.sum(-1, keepdim=True)).to(device, dtype)


def make_ours(shape: Shape, device: str, dtype: torch.dtype) -> Experts:
    with torch.device(device):
        experts = Experts(FeedForwardConfig(width=shape.inner), shape.experts, shape.width)
    return experts.to(dtype)


def make_peer(ours: Experts, shape: Shape, implementation: str) -> Any:
    """transformers' experts with the very same parameters."""
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    config = Qwen3MoeConfig(
        hidden_size=shape.width, moe_intermediate_size=shape.inner, num_experts=shape.experts, hidden_act="silu"
    )
    config._experts_implementation = implementation
    with torch.device("meta"):
        peer = Qwen3MoeExperts(config)
    peer.gate_up_proj, peer.down_proj = ours.get_parameter("gate_up"), ours.get_parameter("down")
    return peer


def runners(ours: Experts, shape: Shape, tokens: int) -> dict[str, Callable[[Given], Tensor]]:
    """Every implementation as a function of inputs, choices and weights."""

    def run_ours(given: Given, backend: str) -> Tensor:
        ours.backend = backend  # type: ignore[assignment]
        return ours(*given)

    found: dict[str, Callable[[Given], Tensor]] = {
        "ours": partial(run_ours, backend="grouped"),
        "our loop": partial(run_ours, backend="loop"),
    }
    for name in TRANSFORMERS:
        if name != "batched_mm" or tokens <= LARGEST_BATCHED:
            found[f"transformers {name}"] = spread(make_peer(ours, shape, name))
    return found


def spread(function: Callable[..., Any]) -> Callable[[Given], Tensor]:
    """A function of one value instead of three."""
    return lambda given: function(*given)


def check_equal(functions: dict[str, Callable[[Given], Tensor]], given: Given) -> None:
    with torch.no_grad():
        outputs = {name: function(given) for name, function in functions.items()}
    expected = outputs["our loop"].float()
    for name, value in outputs.items():
        difference = float((value.float() - expected).abs().max() / expected.abs().max())
        assert difference < (0.03 if value.dtype == torch.bfloat16 else 1e-4), f"{name} differs by {difference}"


def best_seconds(functions: dict[str, Callable[[], object]], repeats: int, device: str) -> dict[str, float]:
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats + 1):  # the first round warms up
        for name, function in functions.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def train(function: Callable[[Given], Tensor], ours: Experts, given: Given) -> None:
    ours.zero_grad(set_to_none=True)
    given[0].grad = None
    function(given).sum().backward()


def forward(function: Callable[[Given], Tensor], steps: list[Given]) -> None:
    with torch.no_grad():
        for given in steps:
            function(given)


def capture(function: Callable[[], None]) -> Callable[[], None]:
    """The same as one graph, after a round that compiles."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


class Bench:
    """Runs cases and prints them."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device, self.quick = device, quick
        self.dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self.results: list[dict[str, Any]] = []

    def many(self, shape: Shape, ours: Experts, *, training: bool) -> None:
        tokens = MANY[self.device] // (4 if self.quick else 1)
        given = make_choices(shape, tokens, self.device, self.dtype)
        given[0].requires_grad_(training)
        functions = runners(ours, shape, tokens)
        check_equal(functions, given)
        runs: dict[str, Callable[[], object]] = {
            name: partial(train, each, ours, given) if training else partial(forward, each, [given])
            for name, each in functions.items()
        }
        seconds = best_seconds(runs, 5 if self.quick else 20, self.device)
        self.compare(f"{shape.name}, {tokens} tokens, {'train' if training else 'forward'}", tokens, seconds)

    def decode(self, shape: Shape, ours: Experts, tokens: int) -> None:
        steps = [make_choices(shape, tokens, self.device, self.dtype, seed) for seed in range(STEPS)]
        functions = runners(ours, shape, tokens)
        check_equal(functions, steps[0])
        runs: dict[str, Callable[[], object]] = {
            name: partial(forward, each, steps) for name, each in functions.items()
        }
        seconds = best_seconds(runs, 3 if self.quick else 20, self.device)
        self.compare(f"{shape.name}, {tokens} tokens, decode", tokens * STEPS, seconds)
        if self.device == "cpu":
            return
        torch.compiler.reset()  # it compiles one function for so many shapes only
        compiled: Any = torch.compile(make_peer(ours, shape, "batched_mm"), fullgraph=True, dynamic=False)
        functions["transformers batched_mm, compiled"] = spread(compiled)
        check_equal(functions, steps[0])
        runs = {name: capture(partial(forward, functions[name], steps)) for name in CAPTURED}
        seconds = best_seconds(runs, 20, self.device)
        self.compare(f"{shape.name}, {tokens} tokens, decode in a graph", tokens * STEPS, seconds)

    def compare(self, case: str, tokens: int, seconds: dict[str, float]) -> None:
        for peer in list(seconds)[1:]:
            mine, theirs = (round(tokens / seconds[name], 1) for name in ("ours", peer))
            ratio = round(mine / theirs, 2)
            print(f"{f'{case}, {peer}':78} {mine:12.0f} {theirs:12.0f} {ratio:7.2f}", flush=True)
            row = {"case": f"{case}, {peer}", "ours": mine, "peer": theirs, "ratio": ratio, "unit": "tokens/s"}
            self.results.append(row)


def main() -> None:
    parser = argparse.ArgumentParser(description="Experts: grouped, looped, and transformers.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--cases", default=",".join(CASES), help="some of them, with commas between")
    parser.add_argument("--tokens", default=None, help="tokens of the decoding steps, with commas between")
    parser.add_argument("--quick", action="store_true", help="fewer tokens and repeats: within a minute")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    cases = options.cases.split(",")
    if unknown := set(cases) - set(CASES):
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    few = [int(each) for each in options.tokens.split(",")] if options.tokens else FEW[options.device]
    bench = Bench(options.device, options.quick)
    print(f"{bench.dtype}, {bench.device}, torch {torch.__version__}; tokens per second")
    print(f"{'case':78} {'ours':>12} {'peer':>12} {'ratio':>7}")
    for shape in SHAPES[bench.device]:
        ours = make_ours(shape, bench.device, bench.dtype)
        for case in cases:
            if case != "decode":
                bench.many(shape, ours, training=case == "train")
                continue
            for tokens in few:
                bench.decode(shape, ours, tokens)
    print(json.dumps({"benchmark": "experts", "device": bench.device, "results": bench.results}))


if __name__ == "__main__":
    main()
