"""Checkpoints of a run in progress: finding the newest intact one, loading it, dropping old ones.

They lie in STAGE/steps/step-NNNNNNN. Because a checkpoint is renamed into place when complete, the newest name is the
newest state; a damaged one (its manifest does not match) is reported and the one before is used.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

from ingot.model.checkpoint import TRAINING, load_state, verify_checkpoint
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import PARTIAL, read_json
from ingot.workspace.progress import Progress


def training_state(model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state keyed by parameter name, so that it loads into any grouping and world size."""
    return dict(get_optimizer_state_dict(model, optimizer))


def latest_checkpoint(folder: Path, progress: Progress) -> Path | None:
    """The newest intact checkpoint of the stage in `folder`, or None."""
    for path in _newest_first(folder):
        try:
            verify_checkpoint(path)
        except ArtifactError as error:
            progress.say(f"checkpoint {path.name} is damaged and passed over: {error}")
            continue
        return path
    return None


def restore(path: Path, model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Load weights and optimizer state in place; returns the contents of training.json."""
    state = {"model": model.state_dict(), "optimizer": training_state(model, optimizer)}
    load_state(state, path)
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    return dict(read_json(path / TRAINING))


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints of the stage, and what a killed process left half written."""
    for path in (folder / "steps").glob(f"step-*{PARTIAL}"):
        shutil.rmtree(path)
    for path in _newest_first(folder)[keep:]:
        aside = path.with_name(path.name + PARTIAL)  # killed while deleting, it is not taken for a checkpoint
        path.replace(aside)
        shutil.rmtree(aside)


def _newest_first(folder: Path) -> list[Path]:
    """The checkpoints with their final name."""
    paths = (folder / "steps").glob("step-*")
    return sorted((path for path in paths if not path.name.endswith(PARTIAL)), reverse=True)
