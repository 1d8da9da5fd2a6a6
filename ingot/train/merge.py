"""The stage `merge`: several checkpoints become one (checkpoints/merge.py); also the last ones that one stage kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ingot.checkpoints.merge import merge
from ingot.checkpoints.merge_config import MergeConfig
from ingot.train.saving.steps import Steps
from ingot.workspace.errors import RecipeError
from ingot.workspace.metrics import MetricsLog
from ingot.workspace.nearest import suggestion
from ingot.workspace.stage import StageFolder


def run(config: MergeConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Merge the input checkpoints; makes a checkpoint."""
    found = dict(cast("Mapping[str, Path]", inputs["checkpoints"]))  # a role that takes many: paths by name
    base = None
    if config.base is not None:
        if config.base not in found:
            fix = suggestion(config.base, found, "inputs")
            raise RecipeError(f"base: no input is named {config.base}", place="merge", fix=fix)
        base = found.pop(config.base)
    paths = list(found.values())
    if config.last is not None:
        if len(paths) != 1:
            raise RecipeError(
                f"last: the last checkpoints of one stage are merged, and {len(paths)} are given",
                place="merge",
                fix="write inputs: {checkpoints: [STAGE]}",
            )
        paths = last_checkpoints(paths[0], config.last)
    merge(paths, config, folder.artifact("checkpoint"), base=base, seed=folder.seed, replace=True)
    return {"merged": len(paths), "method": config.method}


def last_checkpoints(final: Path, count: int) -> list[Path]:
    """The last `count` checkpoints of the stage that made `final`, which counts as one unless its step was kept too."""
    steps = Steps(final.parent)
    kept = steps.there()
    rows = MetricsLog(final.parent / "metrics.jsonl").read()[-1:]
    ended = rows[0]["step"] + 1 if rows else None
    paths = [steps.path(step) for step in kept] + ([] if ended in kept else [final])
    if len(paths) < count:
        raise RecipeError(
            f"the last {count} checkpoints are wanted, and {final.parent.name} has {len(paths)}",
            place="merge",
            fix="set checkpoints.keep_every in that stage: only those outlive it",
        )
    return paths[-count:]
