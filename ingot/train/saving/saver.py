"""Checkpoints of a run in progress: written while it goes on, kept by policy, copied away, and found again.

`save` stops the run only to copy its state (host_copy.py); a thread then writes, checksums and renames (write.py), deletes what
the policy does not keep (steps.py) and has the rest copied to the URL (copies.py). The next save waits for the one before.
`restore` takes the newest checkpoint that is intact, here or at the URL; a run that goes on from it is the run that was never
stopped, because everything random is a function of (seed, step).

The thread is our own, around torch's `save`, and not torch's `async_save`: checksums and the rename must follow in the
background, what goes wrong there must reach the run, and every wait must have a deadline.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from ingot.checkpoints.checkpoint import verify_checkpoint
from ingot.model.transformer import Transformer
from ingot.train.parallel.layout import Layout
from ingot.train.saving.adapter import write_adapted
from ingot.train.saving.background import Background
from ingot.train.saving.config import CheckpointsConfig
from ingot.train.saving.copies import Copier
from ingot.train.saving.host_copy import HostCopy
from ingot.train.saving.ranks import DEADLINE, Ranks
from ingot.train.saving.state import load_run, run_state
from ingot.train.saving.steps import MEASURE, Steps, for_good, serving, steps_to_keep
from ingot.train.saving.write import Contents, write_checkpoint
from ingot.workspace.errors import ArtifactError, Interrupted
from ingot.workspace.stage import StageFolder

FINAL = "checkpoint"  # the artifact of the stage: weights only
PATIENCE_SECONDS = 1.0  # a longer wait for the checkpoint before is worth a line


class Saver:
    """The checkpoints of one stage. All ranks make one and call its methods together."""

    def __init__(self, folder: StageFolder, config: CheckpointsConfig, layout: Layout | None) -> None:
        self.folder, self.config = folder, config
        self.ranks = Ranks(layout)
        self.steps = Steps(folder.path)
        self.copier = Copier(config.copy_to, folder, config, layout) if config.copy_to is not None else None
        self._copy = HostCopy()
        self._background = Background(DEADLINE.total_seconds())

    def __enter__(self) -> Saver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish what is being written, unless the user wants to stop at once."""
        if kind is None or issubclass(kind, Interrupted):  # a polite stop promises that the work is saved
            self.wait()
        elif issubclass(kind, Exception):
            try:
                self.wait()
            except Exception as failure:  # noqa: BLE001 - the error that is on its way is the one to raise
                self.folder.progress.say(f"the last checkpoint was not written: {failure}")

    def save(self, step: int, model: Transformer, optimizer: torch.optim.Optimizer, training: dict[str, Any]) -> float:
        """Save the run after `step` steps; returns the seconds that the run stopped for it.

        `training` is what must come back besides weights and optimizer state, as plain JSON. With a
        `validation_bits_per_byte` in it the checkpoint is one of those of which the best is kept.
        """
        began = time.monotonic()
        if not self._background.idle_within(PATIENCE_SECONDS):
            self.folder.progress.say(
                f"step {step}: the checkpoint before is still being written and the run waits for it; "
                "save less often, or to a faster disk"
            )
        self._background.wait()
        state, training = run_state(model, optimizer), {"step": step, **training}
        if self.config.asynchronous:
            tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
            contents = Contents(model, state, self._copy.take(tensors, optimizer), training)
            self._background.start(lambda: self._write(step, contents, training))
        else:
            self._write(step, Contents(model, state, None, training), training)
        return time.monotonic() - began

    def wait(self) -> None:
        """Wait until all that was saved is written and copied; raises what went wrong with it."""
        self._background.wait()
        if self.copier is not None:
            self.copier.wait()

    def keeps(self, step: int, training: dict[str, Any]) -> bool:
        """Whether a checkpoint of `step` would outlive the stage: one to branch from, or the best."""
        self._background.wait()  # its thread uses the same process group
        return for_good(step, self.config) or self.ranks.once(lambda: self._is_best(training))

    def restore(self, model: Transformer, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
        """Load the newest intact checkpoint in place; returns its `training`, None without any. Newer ones are deleted."""
        self.wait()
        step = self._newest_intact()
        if step is None:
            return None
        training = load_run(self.steps.path(step), model, optimizer)
        self.ranks.once(lambda: self.steps.forget_after(step))
        if self.copier is not None:
            self.copier.forget_after(step)
        return training

    def finish(self, model: Transformer) -> None:
        """Write the stage's final checkpoint, which has weights only, and delete those that only served the run."""
        self.wait()
        if model.lora is None:
            write_checkpoint(self.folder.artifact(FINAL), Contents(model, run_state(model, None)), self.ranks)
        elif problem := write_adapted(self.folder.path, self.folder.artifact(FINAL), model, self.ranks):
            self.folder.progress.say(f"the adapter is in the merged checkpoint only: {problem}")
        self._clean_up()

    def finished(self, model: Transformer, steps: int) -> bool:
        """Whether a run of `steps` steps wrote its final checkpoint before (here or at the URL); its weights are loaded then."""
        path = self.folder.artifact(FINAL)
        if self.copier is not None and not self.ranks.once(path.exists):
            self.copier.fetch(FINAL, path)
        rows = self.ranks.once(lambda: self.folder.metrics.read()[-1:] if path.exists() else [])
        if (
            not rows
            or rows[0]["step"] + 1 != steps
            or not self._intact(path, "the final checkpoint is damaged and made again")
        ):
            return False
        if model.lora is None:  # the weights of one with adapters are merged there
            load_run(path, model, None)
        self._clean_up()
        return True

    def _write(self, step: int, contents: Contents, training: dict[str, Any]) -> None:
        self._copy.wait()
        write_checkpoint(self.steps.path(step), contents, self.ranks)
        self.ranks.once(lambda: self._note(step, training))
        if self.copier is not None:
            self.copier.start(self.ranks)

    def _note(self, step: int, training: dict[str, Any]) -> None:
        """A checkpoint is complete: it may be the best, and older ones may go."""
        if self._is_best(training):
            self.steps.note_best(step, training[MEASURE])
        self._delete_old(finished=False)

    def _is_best(self, training: dict[str, Any]) -> bool:
        best, validation = self.steps.best(), training.get(MEASURE)
        return self.config.keep_best and validation is not None and (best is None or validation < best[1])

    def _clean_up(self) -> None:
        """The stage is finished: only what outlives it stays."""
        if self.copier is not None:
            self.copier.finish(self.folder.artifact(FINAL))
        self.ranks.once(lambda: self._delete_old(finished=True))

    def _delete_old(self, *, finished: bool) -> None:
        """Delete what the policy does not keep. With a URL, what is kept for good is kept there."""
        there = self.steps.there()
        keep = steps_to_keep(there, self.config, self.steps.best_step(), finished=finished)
        if self.copier is not None:
            needed = serving(there, self.config, self.steps.best_step(), finished=finished)
            keep = (keep - self.copier.copied) | needed | self.copier.copying
        self.steps.delete(set(there) - keep)

    def _newest_intact(self) -> int | None:
        there = self.ranks.once(self.steps.there)
        copied = self.copier.there() if self.copier is not None else []
        found = sorted({*there, *copied}, reverse=True)
        for step in found:
            path = self.steps.path(step)
            if step in there and self._intact(path, f"checkpoint {path.name} is damaged and passed over"):
                return step
            if self.copier is not None and self.copier.fetch(path.name, path):
                return step
        if found:  # nothing is deleted: perhaps it is the disk, and tomorrow they can be read
            raise ArtifactError(
                f"all checkpoints of the run are damaged: {', '.join(self.steps.path(step).name for step in found)}",
                place=str(self.steps.folder),
                fix="look at the disk; move them away to begin again",
            )
        return None

    def _intact(self, path: Path, otherwise: str) -> bool:
        """Whether every file can be read and is what was written; the ranks divide the reading."""
        problems = [problem for problem in self.ranks.each(lambda: self._problem(path)) if problem is not None]
        if problems:
            self.folder.progress.say(f"{otherwise}: {problems[0]}")
        return not problems

    def _problem(self, path: Path) -> str | None:
        """The problem with this rank's files, if they are damaged. A file that cannot be reached now is an error of all ranks."""
        try:
            verify_checkpoint(path, self.ranks.rank, self.ranks.world)
        except ArtifactError as error:
            return str(error)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return f"it cannot be read: {error}"  # a bad sector
        return None
