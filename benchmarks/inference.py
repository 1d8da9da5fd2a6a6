"""Sampling speed: Ingot's engine and transformers' generate, on models of one shape, in turns on the same machine.

Cases: every request of the same length at batch 1, 8 and 64; groups of eight samples of one prompt (what RL asks for);
and requests that end at different times, where the peer's batch runs until its longest request is done. Tokens per
second count the tokens that were asked for, prompts read included in the time.

    python benchmarks/inference.py [--device cpu|cuda] [--quick] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer

SHAPES = {
    "cpu": {
        "vocabulary": 4096,
        "width": 192,
        "depth": 6,
        "heads": 6,
        "key_value_heads": 2,
        "head_width": 32,
        "inner": 512,
    },
    "cuda": {
        "vocabulary": 49152,
        "width": 576,
        "depth": 30,
        "heads": 9,
        "key_value_heads": 3,
        "head_width": 64,
        "inner": 1536,
    },
}
CONTEXT = 512


@dataclass
class Case:
    """Prompts and how many tokens each request gets."""

    name: str
    prompts: list[list[int]]
    counts: list[int]
    temperature: float


def cases(vocabulary: int, quick: bool) -> list[Case]:
    generator = random.Random(0)

    def prompt() -> list[int]:
        return [generator.randrange(vocabulary) for _ in range(32)]

    long, short = (32, 24) if quick else (100, 60)
    result = [
        Case("batch 1", [prompt()], [long], 0.0),
        Case("batch 8", [prompt() for _ in range(8)], [long] * 8, 0.0),
        Case("batch 64", [prompt() for _ in range(64)], [short] * 64, 0.0),
        Case("8 prompts x 8 samples", [p for p in [prompt() for _ in range(8)] for _ in range(8)], [short] * 64, 1.0),
    ]
    uneven = [generator.randint(short // 6, short * 2 - short // 6) for _ in range(128)]
    prompts = [p for p in [prompt() for _ in range(16)] for _ in range(8)]
    return [*result, Case("16 x 8, uneven lengths", prompts, uneven, 1.0)]


def our_model(shape: dict[str, int], device: str, dtype: torch.dtype) -> Transformer:
    attention = {name: shape[name] for name in ("heads", "key_value_heads", "head_width")}
    block = {"mixer": attention, "feed_forward": {"width": shape["inner"]}}
    model = Transformer(
        ModelConfig.model_validate(
            {
                "vocabulary_size": shape["vocabulary"],
                "width": shape["width"],
                "blocks": {"layer": block},
                "layers": f"layer*{shape['depth']}",
                "context": CONTEXT,
            }
        )
    )
    initialise(model, seed=0)
    return model.to(device, dtype)


def peer_model(shape: dict[str, int], device: str, dtype: torch.dtype) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["width"],
        intermediate_size=shape["inner"],
        num_hidden_layers=shape["depth"],
        num_attention_heads=shape["heads"],
        num_key_value_heads=shape["key_value_heads"],
        head_dim=shape["head_width"],
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval().to(device, dtype)


def run_ours(engine: Engine, case: Case) -> None:
    samplings = [
        Sampling(max_new_tokens=count, temperature=case.temperature, seed=number)
        for number, count in enumerate(case.counts)
    ]
    completions = engine.complete(case.prompts, samplings)
    assert [len(each.tokens) for each in completions] == case.counts


def run_peer(model: Any, case: Case) -> None:
    """Batches of 64, each until its longest request has its tokens."""
    for start in range(0, len(case.prompts), 64):
        ids = torch.tensor(case.prompts[start : start + 64], device=model.device)
        count = max(case.counts[start : start + 64])
        sampled = {"do_sample": True, "temperature": 1.0, "top_k": 0} if case.temperature else {"do_sample": False}
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, **sampled)
        assert out.shape[1] == ids.shape[1] + count


def best_seconds(functions: list[Callable[[], None]], repeats: int, device: str) -> list[float]:
    """The best time of each; they take turns, so that a busy machine is busy for both."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats + 1):  # the first round warms up
        for index, function in enumerate(functions):
            start = time.perf_counter()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="Sampling speed against transformers.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer tokens and repeats: within a minute")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    shape, dtype = SHAPES[options.device], torch.float32 if options.device == "cpu" else torch.bfloat16
    ours, peer = our_model(shape, options.device, dtype), peer_model(shape, options.device, dtype)
    parameters = sum(parameter.numel() for parameter in ours.parameters())
    print(
        f"{parameters / 1e6:.1f}M parameters, {dtype}, {options.device}, "
        f"{torch.get_num_threads()} threads; tokens per second"
    )
    print(f"{'case':28} {'ingot':>10} {'transformers':>13} {'ratio':>7}")
    results = []
    for case in cases(shape["vocabulary"], options.quick):
        engine = Engine(ours, slots=min(64, len(case.prompts)))
        version = iter(range(1, 1000))

        def step(engine: Engine = engine, case: Case = case, version: Any = version) -> None:
            engine.update(None, next(version))  # as in RL: nothing is left over from the round before
            run_ours(engine, case)

        def peer_step(case: Case = case) -> None:
            run_peer(peer, case)

        seconds = best_seconds([step, peer_step], 1 if options.quick else 3, options.device)
        mine, theirs = (round(sum(case.counts) / value, 1) for value in seconds)
        results.append(
            {"case": case.name, "ours": mine, "peer": theirs, "ratio": round(mine / theirs, 2), "unit": "tokens/s"}
        )
        print(f"{case.name:28} {mine:10.0f} {theirs:13.0f} {mine / theirs:7.2f}", flush=True)
    print(json.dumps({"benchmark": "inference", "device": options.device, "results": results}))


if __name__ == "__main__":
    main()
