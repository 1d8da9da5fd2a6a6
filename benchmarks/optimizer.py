"""Speed of an optimizer step: our Muon and AdamW, torch's fused AdamW, and torch's Muon with fused AdamW for the rest.

All of them update the parameters of the same Llama-shaped model from the same gradients; the model itself never runs. Two tables:
a whole step, and the orthogonalisation alone for each shape of matrix, with the FLOP/s that it would reach if it ran as
K. Jordan wrote it (5 iterations of 4·m²n + 2·m³ operations), so that savings show as speed. torch's Muon only on CUDA. In ms.

    python benchmarks/optimizer.py [--device cpu|cuda] [--quick] [--threads N] [--size small|1b] [--coefficients NAME]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.optim.build import make_optimizer
from ingot.optim.config import AdamWConfig, MuonConfig
from ingot.optim.groups import decays, is_hidden_matrix
from ingot.optim.newton_schulz import orthogonalise, polynomials

SIZES: dict[str, dict[str, int]] = {
    "small": {"width": 128, "layers": 2, "heads": 8, "key_value_heads": 2, "inner": 512, "vocabulary": 2048},
    "1b": {"width": 2048, "layers": 16, "heads": 32, "key_value_heads": 8, "inner": 8192, "vocabulary": 128256},
}


def make_model(size: str, device: str) -> Transformer:
    numbers = SIZES[size]
    heads = {"heads": numbers["heads"], "key_value_heads": numbers["key_value_heads"]}
    mixer = {**heads, "head_width": numbers["width"] // numbers["heads"]}
    shape = ModelConfig.model_validate(
        {
            "vocabulary_size": numbers["vocabulary"],
            "width": numbers["width"],
            "blocks": {"layer": {"mixer": mixer, "feed_forward": {"width": numbers["inner"]}}},
            "layers": f"layer*{numbers['layers']}",
            "context": 4096,
            "tied_embeddings": True,
        }
    )
    with torch.device(device):
        model = Transformer(shape)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter) * 1e-4
    return model


def torch_adamw(model: Transformer) -> list[torch.optim.Optimizer]:
    groups = [
        {"params": [p for name, p in model.named_parameters() if decays(name, p) == decayed], "weight_decay": decay}
        for decayed, decay in ((True, 0.1), (False, 0.0))
    ]
    return [torch.optim.AdamW(groups, lr=1e-5, fused=True)]


def torch_muon(model: Transformer) -> list[torch.optim.Optimizer]:
    """Fused weights as one matrix each: torch's class knows no other way."""
    matrices: list[nn.Parameter] = [p for name, p in model.named_parameters() if is_hidden_matrix(name, p)]
    rest = [p for name, p in model.named_parameters() if not is_hidden_matrix(name, p)]
    return [torch.optim.Muon(matrices, lr=1e-5), torch.optim.AdamW(rest, lr=1e-5, fused=True)]


def best_milliseconds(functions: dict[str, Callable[[], object]], repeats: int, device: str) -> dict[str, float]:
    """The best of several rounds, in which all take turns; two rounds warm up."""
    best = dict.fromkeys(functions, float("inf"))
    for number in range(repeats + 2):
        for name, function in functions.items():
            _wait(device)
            start = time.perf_counter()
            function()
            _wait(device)
            if number >= 2:
                best[name] = min(best[name], 1000 * (time.perf_counter() - start))
    return best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def time_steps(size: str, device: str, repeats: int, coefficients: str) -> dict[str, float]:
    """Milliseconds of a step. One optimizer at a time lives beside the model, or four sets of moments would."""
    model = make_model(size, device)
    muon = MuonConfig.model_validate({"kind": "muon", "lr": 1e-5, "coefficients": coefficients})
    makers: dict[str, Callable[[], list[torch.optim.Optimizer]]] = {
        "our Muon": lambda: [make_optimizer(model, muon)],
        "our AdamW": lambda: [make_optimizer(model, AdamWConfig(lr=1e-5))],
        "torch AdamW": lambda: torch_adamw(model),
    }
    if device == "cuda":  # it iterates in bfloat16, which most CPUs can only emulate
        makers["torch Muon"] = lambda: torch_muon(model)
    found: dict[str, float] = {}
    for name, make in makers.items():
        optimizers = make()
        found |= best_milliseconds({name: lambda each=optimizers: [one.step() for one in each]}, repeats, device)  # type: ignore[misc]
        del optimizers
    return found


def time_iterations(size: str, device: str, repeats: int, coefficients: str) -> list[dict[str, Any]]:
    """Orthogonalisation of all matrices of one kind."""
    numbers, rows = SIZES[size], []
    key_rows = numbers["width"] * numbers["key_value_heads"] // numbers["heads"]
    wide, inner = numbers["width"], numbers["inner"]
    shapes = {
        "query, output": (wide, wide),
        "key, value": (key_rows, wide),
        "gate, up": (inner, wide),
        "down": (wide, inner),
    }
    steps = polynomials(coefficients, 5)
    for name, shape in shapes.items():
        stack = torch.randn(numbers["layers"], *shape, device=device)
        stack = stack.bfloat16() if device == "cuda" else stack
        milliseconds = best_milliseconds({name: lambda given=stack: orthogonalise(given, steps)}, repeats, device)[name]  # type: ignore[misc]
        small, large = sorted(shape)
        work = 5 * (4 * small**2 * large + 2 * small**3) * len(stack)
        teraflops = work / milliseconds / 1e9
        print(
            f"{name:16} {len(stack):3} of {shape[0]:5} × {shape[1]:5} {milliseconds:9.2f} ms {teraflops:9.1f} TFLOP/s"
        )
        rows.append({"case": f"orthogonalise {name}", "ours": round(milliseconds, 3), "unit": "ms"})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="A step of Muon and of AdamW, ours and torch's.")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer repeats: within a minute")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads (default: torch's choice)")
    parser.add_argument("--size", choices=list(SIZES), default=None, help="default: small on a CPU, 1b on CUDA")
    parser.add_argument("--coefficients", choices=["quintic", "polar_express"], default="quintic")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = options.device
    size = options.size or ("small" if device == "cpu" else "1b")
    repeats = 3 if options.quick else 15
    print(f"{size}, {options.coefficients}, float32 parameters, {device}, torch {torch.__version__}")
    results = time_iterations(size, device, repeats, options.coefficients)
    found = time_steps(size, device, repeats, options.coefficients)
    print(f"\n{'a step':16} {'ms':>9}")
    for name, milliseconds in found.items():
        print(f"{name:16} {milliseconds:9.2f}")
    print(f"Muon over AdamW: {found['our Muon'] - found['our AdamW']:.2f} ms")
    for ours, peer in (("our Muon", "torch Muon"), ("our AdamW", "torch AdamW"), ("our Muon", "torch AdamW")):
        if peer not in found:
            continue
        mine, theirs = round(found[ours], 3), round(found[peer], 3)
        case = f"{ours}, {peer}"
        results.append({"case": case, "ours": mine, "peer": theirs, "ratio": round(theirs / mine, 2), "unit": "ms"})
    print(json.dumps({"benchmark": "optimizer", "device": device, "results": results}))


if __name__ == "__main__":
    main()
