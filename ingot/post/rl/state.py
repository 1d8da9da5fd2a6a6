"""What RL saves beside a checkpoint: samples of a batch in use, finished groups in the queue, a reference that was replaced.

Samples cannot be made again: the weights that drew them are gone. They are written when a checkpoint is, and only if it falls
into the middle of a batch. Files of the newest checkpoints stay, since a damaged one sends a run back to one before it: of all
that the stage keeps, and of the one that is being written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ingot.checkpoints.full_disk import save_tensors
from ingot.post.processes import Processes
from ingot.post.rl.checks.staleness import Ages
from ingot.tokens.batch import TokenSequence
from ingot.train.parallel.apply import keep_shards, whole_weights
from ingot.train.reference import FrozenModel
from ingot.workspace.errors import ArtifactError

KEPT = 4  # files of each kind, at least


@dataclass(frozen=True)
class HeldBatch:
    """Stamped samples: the sequences of each task, the step of the policy they were stamped with, and the tokens' ages then."""

    number: int
    version: int
    groups: Sequence[Sequence[TokenSequence]]
    metrics: dict[str, float]
    ages: Ages


class RlState:
    """The files. All processes call each method; the first one writes."""

    def __init__(self, folder: Path, processes: Processes, checkpoints: int) -> None:
        """`checkpoints` are kept at the same time."""
        self.folder, self.processes, self.kept = folder, processes, max(KEPT, checkpoints + 1)
        self.known: set[str] = set()  # files that hold what this run has; one of a run before it may hold other samples

    def write(self, batch: HeldBatch | None, reference: FrozenModel | None, step: int) -> None:
        """Save what is not there yet."""
        if batch is not None:
            name = f"batch-{batch.number:08d}.npz"
            self.processes.once(lambda: self._write(name, lambda path: write_batch(path, batch)))
        name = f"reference-{step:08d}.pt"
        if reference is not None and self.processes.once(lambda: name not in self.known):
            first, weights = self.processes.first, dict[str, Tensor]()
            for part, tensor in whole_weights(reference.passes.model, reference.passes.layout):
                weights |= {part: tensor.cpu()} if first else {}
            self.processes.once(lambda: self._write(name, lambda path: save_tensors(path, weights)))

    def write_queue(self, name: str, groups: Sequence[dict[str, Any]]) -> None:
        """Save the finished groups that wait for the learner."""
        self._write(name, lambda path: path.write_text(json.dumps(groups), encoding="utf-8"))

    def read_queue(self, name: str) -> list[dict[str, Any]]:
        """The inverse of `write_queue`."""
        groups: list[dict[str, Any]] = json.loads(self._find(name).read_text(encoding="utf-8"))
        return groups

    def _write(self, name: str, save: Callable[[Path], object]) -> None:
        path = self.folder / name
        if name in self.known:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"partial-{name}")
        save(partial)
        partial.replace(path)
        self.known.add(name)
        for old in sorted(self.folder.glob(f"{name.partition('-')[0]}-*"))[: -self.kept]:
            old.unlink()

    def read_batch(self, number: int) -> HeldBatch:
        """The samples of a batch."""
        return read_batch(self._find(f"batch-{number:08d}.npz"))

    def read_reference(self, reference: FrozenModel, step: int) -> None:
        """Fill the reference with the policy of that step."""
        weights = torch.load(self._find(f"reference-{step:08d}.pt"), weights_only=True, mmap=True)
        keep_shards(reference.passes.model, weights.items())

    def _find(self, name: str) -> Path:
        path = self.folder / name
        if not path.exists():
            raise ArtifactError(
                "the run cannot go on from its checkpoint: what RL saved beside it is gone",
                place=str(path),
                fix="begin the stage again: delete its folder",
            )
        self.known.add(name)
        return path

    def forget(self) -> None:
        """Call this after rewinding to a checkpoint: files on disk may not match the batches made from here on."""
        self.known.clear()


def write_batch(path: Path, batch: HeldBatch) -> None:
    """The sequences one after the other, with their lengths; streams in float32, as training reads them."""
    sequences = [each for group in batch.groups for each in group]
    names = sorted(sequences[0].streams)
    about = {"number": batch.number, "version": batch.version, "metrics": batch.metrics, "streams": names}
    about |= {"ages": list(batch.ages.items())}
    arrays = {
        f"stream_{place}": np.concatenate([np.array(each.streams[name], np.float32) for each in sequences])
        for place, name in enumerate(names)
    }
    with path.open("wb") as file:
        np.savez(
            file,
            about=np.array(json.dumps(about)),
            groups=np.array([len(group) for group in batch.groups]),
            lengths=np.array([len(each.tokens) for each in sequences]),
            tokens=np.concatenate([np.array(each.tokens, np.int32) for each in sequences]),
            allow_pickle=False,
            **arrays,
        )


def read_batch(path: Path) -> HeldBatch:
    """The inverse of `write_batch`."""
    with np.load(path) as file:
        about = json.loads(str(file["about"]))
        cuts = np.cumsum(file["lengths"])[:-1]
        tokens = [part.tolist() for part in np.split(file["tokens"], cuts)]
        streams = {
            name: [part.tolist() for part in np.split(file[f"stream_{place}"], cuts)]
            for place, name in enumerate(about["streams"])
        }
        sizes = file["groups"].tolist()
    sequences = iter(
        TokenSequence(own, {name: rows[place] for name, rows in streams.items()}) for place, own in enumerate(tokens)
    )
    groups = [[next(sequences) for _ in range(size)] for size in sizes]
    return HeldBatch(about["number"], about["version"], groups, about["metrics"], dict(about["ages"]))
