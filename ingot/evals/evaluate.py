"""The stage `eval`: measure one checkpoint and write its scores.

Which tasks and texts are asked depends on `task_seed` alone, so that all checkpoints of a recipe meet the same ones and
are compared pairwise; only sampling (temperature above 0) depends on the stage's seed. The tasks come last: they
take longest, and a text that is missing, too short or too long is found before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import load_model
from ingot.evals.config import EvalConfig
from ingot.evals.scores import Metric, save_scores
from ingot.evals.suites.bits_per_byte import measure_bits_per_byte
from ingot.evals.suites.continuations import continue_texts
from ingot.evals.suites.needle import measure_needle
from ingot.evals.suites.tasks import measure_tasks
from ingot.inference.engine import Engine
from ingot.tokens.chat import ChatFormat
from ingot.train.device import choose_device
from ingot.workspace.errors import ArtifactError
from ingot.workspace.stage import StageFolder


def run(config: EvalConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Measure the checkpoint; makes scores. The summary holds every metric's value."""
    device = choose_device(config.device)
    model = load_model(inputs["checkpoint"], device=device).eval()
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ArtifactError(
            "the checkpoint has no tokenizer",
            place=str(inputs["checkpoint"]),
            fix="give a checkpoint that a training stage made",
        )
    folder.progress.start(4, "suite")
    engine = Engine(model, slots=config.slots, length=config.max_tokens)
    continued = continue_texts(config.prompts, engine, tokenizer, config.prompt_tokens)
    folder.progress.advance(1)
    of_texts: list[Metric] = []
    if config.bits_per_byte:
        of_texts += measure_bits_per_byte(
            model,
            inputs["shards"],
            sequence_length=config.sequence_length,
            rows=config.validation_rows,
            device=device,
            stop=folder.stop,
        )
    folder.progress.advance(2)
    if config.needle is not None:
        of_texts += measure_needle(model, tokenizer, inputs["shards"], config.needle, config.task_seed, folder.stop)
    folder.progress.advance(3)
    of_tasks, samples = measure_tasks(config, engine, ChatFormat(tokenizer), folder.seed, folder.stop)
    metrics = of_tasks + of_texts
    save_scores(folder.artifact("scores"), metrics, samples + continued)
    folder.progress.advance(4)
    return {metric.name: metric.estimate.value for metric in metrics}
