"""The stage `eval`: measure one checkpoint and write its scores.

Which tasks and texts are asked depends on `task_seed` alone, so that all checkpoints of a recipe meet the same ones and
are compared pairwise; only sampling (temperature above 0) depends on the stage's seed. Suites that take long come last: a
text that is missing, too short or too long is found before them. The scores are in the order of the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import load_model
from ingot.evals.config import EvalConfig
from ingot.evals.scores import Metric, save_scores
from ingot.evals.suite import Measured, Subject
from ingot.inference.engine import Engine
from ingot.train.device import choose_device
from ingot.workspace.errors import ArtifactError, RecipeError
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
    folder.progress.start(len(config.suites), "suite")
    subject = Subject(
        model=model,
        tokenizer=tokenizer,
        engine=Engine(model, slots=config.slots, length=config.max_tokens),
        shards=inputs.get("shards"),
        device=device,
        seed=folder.seed,
        task_seed=config.task_seed,
        max_tokens=config.max_tokens,
        stop=folder.stop,
    )
    found: dict[int, Measured] = {}
    for number in sorted(range(len(config.suites)), key=lambda number: config.suites[number].long):
        found[number] = config.suites[number].measure(subject)
        folder.progress.advance(len(found))
    measured = [found[number] for number in range(len(config.suites))]
    metrics = [metric for each in measured for metric in each.metrics]
    _check_names(metrics)
    save_scores(folder.artifact("scores"), metrics, [sample for each in measured for sample in each.samples])
    return {metric.name: metric.estimate.value for metric in metrics}


def _check_names(metrics: Sequence[Metric]) -> None:
    """Fail if two suites have measured something of the same name: one would hide the other."""
    names = [metric.name for metric in metrics]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RecipeError(
            f"two suites measure {twice[0]}", place="eval", fix="leave one out, or give them other options"
        )
