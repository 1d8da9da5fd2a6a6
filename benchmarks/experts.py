"""Speed of the routed experts: ours (grouped), our reference loop, and transformers' three implementations, same weights.

Cases: a training pass (forward and backward) and a forward pass over many tokens, and the few tokens of a decoding step. Every
implementation gets the same random choices of experts, skewed as real ones are, and must give the same output. They take
turns, so that a busy machine is busy for all; the best time of several rounds counts. Unit: tokens per second.

    python benchmarks/experts.py [--device cpu|cuda] [--quick] [--threads N]
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
TOKENS = {"cpu": (1024, 1, 8), "cuda": (16384, 1, 64)}


def make_choices(shape: Shape, tokens: int, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, K different experts of each token (some experts are liked more), weights that sum to one."""
    generator = torch.Generator().manual_seed(0)
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


def runners(ours: Experts, shape: Shape, given: tuple[Tensor, Tensor, Tensor]) -> dict[str, Callable[[], Tensor]]:
    """Every implementation as a function of nothing."""
    x, indices, weights = given

    def run_ours(backend: str) -> Tensor:
        ours.backend = backend  # type: ignore[assignment]
        return ours(x, indices, weights)

    found: dict[str, Callable[[], Tensor]] = {
        "ours": lambda: run_ours("grouped"),
        "our loop": lambda: run_ours("loop"),
    }
    for name in TRANSFORMERS:
        if name != "batched_mm" or len(x) <= LARGEST_BATCHED:
            found[f"transformers {name}"] = partial(make_peer(ours, shape, name), x, indices, weights)
    return found


def check_equal(functions: dict[str, Callable[[], Tensor]]) -> None:
    with torch.no_grad():
        outputs = {name: function() for name, function in functions.items()}
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


def timed(function: Callable[[], Tensor], ours: Experts, x: Tensor, training: bool) -> Callable[[], object]:
    def step() -> None:
        if training:
            ours.zero_grad(set_to_none=True)
            x.grad = None
            function().sum().backward()
        else:
            with torch.no_grad():
                function()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="Experts: grouped, looped, and transformers.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer tokens and repeats: within a minute")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device, dtype = options.device, torch.float32 if options.device == "cpu" else torch.bfloat16
    many, *few = TOKENS[device]
    many = many // 4 if options.quick else many
    print(f"{dtype}, {device}, torch {torch.__version__}; tokens per second")
    print(f"{'case':58} {'ours':>12} {'peer':>12} {'ratio':>7}")
    results = []
    for shape in SHAPES[device]:
        ours = make_ours(shape, device, dtype)
        for tokens, training in [(many, True), (many, False), *((count, False) for count in few)]:
            given = make_choices(shape, tokens, device, dtype)
            given[0].requires_grad_(training)
            functions = runners(ours, shape, given)
            check_equal(functions)
            steps = {name: timed(function, ours, given[0], training) for name, function in functions.items()}
            rounds = (5 if options.quick else 20) * (1 if tokens == many else 10)
            seconds = best_seconds(steps, rounds, device)
            for peer in list(seconds)[1:]:
                mine, theirs = (round(tokens / seconds[name], 1) for name in ("ours", peer))
                case = f"{shape.name}, {tokens} tokens, {'train' if training else 'forward'}, {peer}"
                ratio = round(mine / theirs, 2)
                print(f"{case:58} {mine:12.0f} {theirs:12.0f} {ratio:7.2f}", flush=True)
                results.append({"case": case, "ours": mine, "peer": theirs, "ratio": ratio, "unit": "tokens/s"})
    print(json.dumps({"benchmark": "experts", "device": device, "results": results}))


if __name__ == "__main__":
    main()
