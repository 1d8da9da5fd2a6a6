"""The checkpoints of a stage: their names, which of them are kept, and finding one to branch from.

They lie in STAGE/steps/step-NNNNNNN. A checkpoint is renamed into place when it is complete, so that the newest name is the
newest state. The policy keeps

    the newest `keep`                    until the stage ends
    multiples of `keep_every`            for good, to branch from
    the best                             until there is a better one; steps/best.json names it
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

from ingot.train.saving.config import CheckpointsConfig
from ingot.train.saving.remote import Remote
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import PARTIAL, read_json, write_json

BEST = "best.json"  # {"step": 1000, "validation_bits_per_byte": 0.93}
COPIES = "copies.json"  # {"url": "s3://bucket/run"}
PREFIX = "step-"
MEASURE = "validation_bits_per_byte"


def step_name(step: int) -> str:
    """`step-0001000`."""
    return f"{PREFIX}{step:07d}"


def numbers(names: Collection[str]) -> list[int]:
    """The steps among these names of folders, in order; half written ones do not count."""
    return sorted(int(name.removeprefix(PREFIX)) for name in names if name.removeprefix(PREFIX).isdigit())


class Steps:
    """The folder STAGE/steps."""

    def __init__(self, stage: Path) -> None:
        self.folder = stage / "steps"

    def path(self, step: int) -> Path:
        """The path of the checkpoint of `step`, whether or not it exists."""
        return self.folder / step_name(step)

    def there(self) -> list[int]:
        """The steps that have one."""
        return numbers([path.name for path in self.folder.glob(f"{PREFIX}*")])

    def best(self) -> tuple[int, float] | None:
        """Step and validation of the best one so far."""
        if not (self.folder / BEST).exists():
            return None
        best = read_json(self.folder / BEST)
        return int(best["step"]), float(best[MEASURE])

    def best_step(self) -> int | None:
        """Its step alone."""
        best = self.best()
        return best[0] if best is not None else None

    def note_best(self, step: int, validation: float) -> None:
        """This one is the best now."""
        write_json(self.folder / BEST, {"step": step, MEASURE: validation})

    def delete(self, steps: Collection[int]) -> None:
        """Delete checkpoints, and what a killed process left half written."""
        for step in steps:
            path = self.path(step)
            path.replace(path.with_name(path.name + PARTIAL))  # killed while deleting, it is not taken for a checkpoint
        for path in self.folder.glob(f"{PREFIX}*{PARTIAL}"):
            shutil.rmtree(path)

    def forget_after(self, step: int) -> None:
        """The run goes on from `step`: what came later (damaged, or not wanted any more) is deleted."""
        self.delete([each for each in self.there() if each > step])
        best = self.best()
        if best is not None and best[0] > step:
            (self.folder / BEST).unlink()


def for_good(step: int, config: CheckpointsConfig) -> bool:
    """Whether the checkpoint of `step` outlives its stage, to branch from."""
    return config.keep_every is not None and step % config.keep_every == 0


def serving(steps: Collection[int], config: CheckpointsConfig, best: int | None, *, finished: bool) -> set[int]:
    """Those of `steps` that serve the run itself: the newest while it goes on, and the best."""
    newest = [] if finished else sorted(steps)[-config.keep :]
    return {step for step in steps if step == best or step in newest}


def steps_to_keep(steps: Collection[int], config: CheckpointsConfig, best: int | None, *, finished: bool) -> set[int]:
    """Those of `steps` that the policy keeps."""
    return serving(steps, config, best, finished=finished) | {step for step in steps if for_good(step, config)}


def find_step(stage: Path, step: int) -> Path:
    """The checkpoint of `step` of the training stage in folder `stage`, to branch from; copied back if it is only at the URL."""
    steps = Steps(stage)
    if step in steps.there():
        return steps.path(step)
    copies = Remote(read_json(steps.folder / COPIES)["url"], stage.name) if (steps.folder / COPIES).exists() else None
    away = numbers(copies.names()) if copies is not None else []
    if copies is not None and step in away:
        copies.download(step_name(step), steps.path(step))
        return steps.path(step)
    there = sorted({*steps.there(), *away})
    raise ArtifactError(
        f"there is no checkpoint of step {step}; there are those of "
        + (", ".join(map(str, there)) if there else "no step at all"),
        place=str(steps.folder),
        fix="choose one of them" if there else "set checkpoints.keep_every in that stage: only those outlive it",
    )
