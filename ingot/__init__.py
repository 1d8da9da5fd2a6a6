"""Ingot: raw text to a thinking, tool-using language model.

The same as the command line, from Python:

    import ingot

    result = ingot.run("recipes/quickstart.yaml", set={"pretrain.steps": 100})
    model = ingot.load(result.checkpoint)
    text = ingot.generate(model, "The capital of")
    ingot.export_model(model, "my-model")

    result = ingot.sft("smollm2", "conversations.jsonl", steps=100, lora={"rank": 16})   # a stage by itself: python/stages.py
    result = ingot.rl(result, prompts, rewards=[brevity], steps=20)

Importing this package imports nothing heavy; each function imports what it needs when it is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.workspace.version import VERSION

if TYPE_CHECKING:
    import torch

    from ingot.model.config import ModelConfig
    from ingot.model.transformer import Transformer
    from ingot.planner.plan import Plan
    from ingot.python.stages import curate as curate
    from ingot.python.stages import distill as distill
    from ingot.python.stages import evaluate as evaluate
    from ingot.python.stages import fit as fit
    from ingot.python.stages import merge as merge
    from ingot.python.stages import prefer as prefer
    from ingot.python.stages import pretrain as pretrain
    from ingot.python.stages import reward as reward
    from ingot.python.stages import rl as rl
    from ingot.python.stages import sft as sft
    from ingot.python.stages import tokenize as tokenize
    from ingot.python.stages import tokenizer as tokenizer
    from ingot.recipe.flow import RunResult
    from ingot.workspace.progress import Progress

__version__ = VERSION
_STAGES = (
    "curate",
    "distill",
    "evaluate",
    "fit",
    "merge",
    "prefer",
    "pretrain",
    "reward",
    "rl",
    "sft",
    "tokenize",
    "tokenizer",
)
"""Functions of python/stages.py, which is imported when one of them is asked for."""
__all__ = ["__version__", "export_model", "generate", "import_model", "load", "plan", "run", *_STAGES]


def __dir__() -> list[str]:
    """What a notebook offers after `ingot.`: not what this file imports for itself."""
    return __all__


def __getattr__(name: str) -> Any:
    if name in _STAGES:
        return getattr(importlib.import_module("ingot.python.stages"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run(
    recipe: str | Path,
    *,
    set: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    from_stage: str | None = None,
    to_stage: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    report: bool = True,
) -> RunResult:
    """Run a recipe: reuse finished stages, resume an unfinished one. `set` changes values: `{"sft.steps": 5}`."""
    from ingot.planner.expected import expected_speed
    from ingot.recipe.flow import run_recipe
    from ingot.recipe.load import load_recipe

    def build_report(folder: Path) -> Path:
        from ingot.report.build import build

        return build(folder, None)

    return run_recipe(
        load_recipe(recipe, set or {}),
        Path(runs),
        from_stage=from_stage,
        to_stage=to_stage,
        dry_run=dry_run,
        progress=progress,
        finish=build_report if report else None,
        expected=expected_speed,
    )


def plan(
    recipe: str | Path,
    *,
    set: Mapping[str, Any] | None = None,
    runs: str | Path = "runs",
    gpus: int | None = None,
    gpu: str | None = None,
) -> Plan:
    """What running a recipe would do and cost, on so many GPUs of a kind ("h100", "h200" …) if given; runs nothing."""
    from ingot.planner.plan import make_plan
    from ingot.recipe.load import load_recipe

    return make_plan(load_recipe(recipe, set or {}, absent=True), Path(runs), gpus=gpus, gpu=gpu)


def load(
    path: str | PathLike[str],
    *,
    dtype: torch.dtype | None = None,
    configure: Callable[[ModelConfig], ModelConfig] | None = None,
) -> Transformer:
    """The model of a run (its last checkpoint), a stage, a checkpoint, a Hugging Face folder or a GGUF file, with tokenizer.

    Its weights are in float32 whatever they are on disk, unless another `dtype` is asked for. `configure` may change what
    does not change the weights, such as the reach of positions: `lambda c: c.with_dual_chunk(4096, 1024, 65536)`.
    """
    import torch

    from ingot.checkpoints.checkpoint import load_model
    from ingot.workspace.runs import find_checkpoint

    return load_model(find_checkpoint(Path(path).expanduser()), dtype=dtype or torch.float32, configure=configure)


def import_model(source: str | Path, folder: str | Path, **options: Any) -> Path:
    """Write a Hugging Face folder or a GGUF file as an Ingot checkpoint. Options: see ingot.checkpoints.convert."""
    from ingot.checkpoints.convert import import_model as convert

    return convert(source, folder, **options)


def export_model(source: str | PathLike[str] | Transformer, out: str | Path, **options: Any) -> Path:
    """Write a model, in memory or on disk, as a Hugging Face folder, or as a GGUF file if the name ends in .gguf.

    Options: see `export_model` and `export_gguf` of ingot.checkpoints.convert.
    """
    from ingot.checkpoints.convert import export_gguf
    from ingot.checkpoints.convert import export_model as export_folder
    from ingot.workspace.runs import find_checkpoint

    found = find_checkpoint(Path(source).expanduser()) if isinstance(source, str | PathLike) else source
    return (export_gguf if Path(out).suffix.lower() == ".gguf" else export_folder)(found, out, **options)


def generate(model: Transformer, prompt: str, **options: Any) -> str:
    """The text that `model` writes after `prompt`. Options: see ingot.inference.generate."""
    from ingot.inference.generate import generate as generate_text

    return generate_text(model, prompt, **options)
