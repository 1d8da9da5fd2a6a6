"""Records what mergekit 0.1.5 makes of three tiny models, in mergekit_numbers.json: python -m tests.checkpoints.mergekit_numbers

Of every merged tensor it keeps two products with random tensors, which no other tensor of that size would have.
"""

from __future__ import annotations

import json
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

RECORD = Path(__file__).with_suffix(".json")
SHAPE: dict[str, Any] = {
    "vocab_size": 31, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "linear": {"weights": (1.0, 3.0)},
    "slerp": {"t": 0.3},
    "task_arithmetic": {"weights": (0.7, 0.4), "scale": 0.9},
    "ties": {"weights": (1.0, 0.5), "density": 0.4},
}
"""By method, options as ours are called."""


def make_models(folder: Path) -> list[Path]:
    """A base and two models near it, as Hugging Face folders."""
    torch.manual_seed(5)
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE))
    paths = [folder / name for name in ("base", "a", "b")]
    base.save_pretrained(paths[0])
    start = {name: value.clone() for name, value in base.state_dict().items()}
    for number, path in enumerate(paths[1:]):
        generator = torch.Generator().manual_seed(number)
        for name, value in base.state_dict().items():
            value.copy_(start[name] + 0.05 * torch.randn(value.shape, generator=generator))
        base.save_pretrained(path)
    return paths


def fingerprints(tensors: dict[str, Tensor]) -> dict[str, list[float]]:
    """Two numbers for every tensor."""
    found = {}
    for name, value in sorted(tensors.items()):
        draw = torch.randn((2, *value.shape), generator=torch.Generator().manual_seed(len(name)))
        found[name] = [float((value * each).sum()) for each in draw]
    return found


def delta() -> Tensor:
    """A difference to make sparse."""
    return torch.randn(6, 7, generator=torch.Generator().manual_seed(11))


def record() -> None:
    """Run mergekit and write its numbers."""
    from mergekit.config import MergeConfiguration
    from mergekit.merge import MergeOptions, run_merge
    from mergekit.sparsify import RescaleNorm, SparsificationMethod, sparsify

    numbers: dict[str, Any] = {"mergekit": version("mergekit")}
    with tempfile.TemporaryDirectory() as temporary:
        base, *models = make_models(Path(temporary))
        for method, options in METHODS.items():
            weights = options.get("weights", (1.0, 1.0))
            spec: dict[str, Any] = {"merge_method": method, "dtype": "float32"}
            if method == "slerp":
                spec |= {"base_model": str(models[0]), "parameters": {"t": options["t"]}}
            elif method != "linear":
                spec |= {"base_model": str(base), "parameters": {"lambda": options.get("scale", 1.0)}}
            spec["models"] = [
                {"model": str(path), "parameters": {"weight": weight, "density": options.get("density", 1.0)}}
                for path, weight in zip(models, weights, strict=True)
            ]
            out = Path(temporary) / method
            run_merge(MergeConfiguration.model_validate(spec), str(out), MergeOptions(copy_tokenizer=False))
            numbers[method] = fingerprints(
                {name: value for file in out.glob("*.safetensors") for name, value in load_file(file).items()}
            )
    torch.manual_seed(4)
    numbers["dare"] = sparsify(delta(), 0.6, SparsificationMethod.random, rescale_norm=RescaleNorm.l1).tolist()
    RECORD.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
