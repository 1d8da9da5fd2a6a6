"""A post-training stage in several processes (torchrun): what they divide, and what each of them holds whole.

    trained model         divided over the mesh of the recipe, as in pre-training; it scores what was sampled (scorer.py)
    sampler               a whole copy in every process, renewed from the divided weights before each step that samples; none with
                          `asynchronous`, where samplers are processes of their own
    reference             of RL and distillation: divided as the trained model is (train/reference.py); of preferences: whole
    teacher, reward model  whole and frozen in every process, in bfloat16 on a GPU; too large for that: `endpoints` (distill)
    tasks, sequences      each process samples, or scores, a run of them; the results go to all, in their order

So every process has all trajectories of a step and makes the same batches of them, of which it trains on its share.

A run is of neighbours, so that the samples of one task are in one process and their prompt is read once. It depends on nothing
that happens while they work: texts that are computed together with others round otherwise, and a stage could not be repeated.
A process that finishes early waits at periodic barriers (barrier.py), so long answers do not hit the collective timeout.

Invariant: what a step consists of does not depend on the number of processes. A task's text is a function of weights, seed and
its place among all tasks of the step (envs/rollout/rollout.py), up to the rounding of matrix products.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from ingot.checkpoints.checkpoint import open_model
from ingot.checkpoints.stored_model import StoredModel
from ingot.model.lora import round_base
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between, work_together
from ingot.post.resumable import Resumable
from ingot.train.config import TrainingConfig
from ingot.train.device import choose_device
from ingot.train.lora import adapt
from ingot.train.parallel.apply import gather_weights
from ingot.train.parallel.divisible import check_divisible
from ingot.train.parallel.layout import Layout, make_layout
from ingot.train.saving.ranks import Ranks
from ingot.train.start import start_from
from ingot.workspace.errors import ArtifactError
from ingot.workspace.interrupt import StopSignal

Result = TypeVar("Result")
Change = Callable[[StoredModel], StoredModel]


class Processes:
    """The processes of a stage. All of them call each method; where one fails, all fail, and none waits for ever."""

    def __init__(
        self, layout: Layout | None = None, stop: StopSignal | None = None, alive: Callable[[], None] = lambda: None
    ) -> None:
        """`alive` is called again and again during shared work, which may take long."""
        self.layout, self.ranks, self.stop, self.alive = layout, Ranks(layout), stop or StopSignal(), alive

    @property
    def size(self) -> int:
        """How many they are."""
        return self.ranks.world

    @property
    def first(self) -> bool:
        """Whether this is the first of them."""
        return self.ranks.first

    @property
    def here(self) -> int:
        """How many of them run on this machine, as their launcher says."""
        return min(self.size, int(os.environ.get("LOCAL_WORLD_SIZE", self.size)))

    def share(
        self,
        count: int,
        work: Callable[[slice, Between], list[Result]],
        saved: Resumable[Result] | None = None,
        *,
        leads: bool = False,
    ) -> list[Result]:
        """The results for `count` items in order: `work` makes those of a run of them, a different one in each process.

        Where the first one `leads` it makes all that is to be saved, and the others wait for it at barriers.

        It calls its second argument between two steps, so that a stop (`Interrupted`) or a failure elsewhere ends it soon.
        With `saved` it is called for one piece after the other, and never for those that were finished before (resumable.py).
        """
        if saved is None:
            runs = [slice(count * rank // self.size, count * (rank + 1) // self.size) for rank in range(self.size)]
            return [result for _, made in self._deal(runs, work) for result in made]
        there = self.once(saved.read)
        missing = saved.missing(count, self.size, [run for run, _ in there])

        def save(run: slice, between: Between) -> list[Result]:
            made = work(run, between)
            saved.put(run, made)
            return made

        pieces = sorted([*there, *self._deal(missing, save, leads=leads)], key=lambda piece: piece[0].start)
        return [result for _, made in pieces for result in made]

    def lead(self, work: Callable[[Between], list[Result]]) -> list[Result]:
        """What long work of the first process returns; the others wait for it at barriers."""
        ((_, made),) = self._deal([slice(0, 1)], lambda _, between: work(between), leads=True)
        return made

    def _deal(
        self, runs: Sequence[slice], work: Callable[[slice, Between], list[Result]], *, leads: bool = False
    ) -> list[tuple[slice, list[Result]]]:
        """Every run with its results; each process works on some neighbouring ones, or the first one on all."""
        own = runs[len(runs) * self.ranks.rank // self.size : len(runs) * (self.ranks.rank + 1) // self.size]
        if leads:
            own = runs if self.first else []

        def part(between: Between) -> list[tuple[slice, list[Result]]]:
            return [(run, work(run, between)) for run in own if run.stop > run.start]

        parts = self.ranks.each(lambda: work_together(self.ranks, self.stop, part, self.alive))
        return [made for each in parts for made in each or []]

    def once(self, work: Callable[[], Result]) -> Result:
        """What `work` returns in the first process, which alone does it."""
        return self.ranks.once(work)

    def whole(
        self,
        model: Transformer,
        checkpoint: Path,
        change: Change = lambda stored: stored,
        dtype: torch.dtype = torch.float32,
    ) -> Transformer:
        """The model to sample from: the trained model or, if it is sharded, a full copy loaded from the checkpoint."""
        if self.layout is None:
            return model
        copied = change(open_model(checkpoint)).load().to(self.layout.mesh.device_type)
        round_base(copied, model)  # a reference is a copy of it
        copied = copied.to(dtype)
        return copied.requires_grad_(requires_grad=False)

    def renew(self, whole: Transformer, model: Transformer) -> None:
        """Bring what is sampled from to the weights of the trained model."""
        if self.layout is not None:
            gather_weights(model, whole, self.layout)


ALONE = Processes()


def begin(
    config: TrainingConfig, checkpoint: Path, seed: int, change: Change = lambda stored: stored
) -> tuple[Layout | None, Transformer, Callable[[Transformer], None] | None]:
    """The layout of a stage, the model that it trains, and what fills that where it is divided (train/start.py).

    A mesh that does not fit the processes or the model, or a model that cannot talk, is an error here, before any work is done.
    """
    device = choose_device(config.device)
    layout = make_layout(config.mesh, device)
    packed = config.lora is not None and config.lora.base != "float32"
    where = torch.device("cpu") if packed else device  # unpacked it may not fit the device
    model, fill = start_from(checkpoint, where, change)
    if model.tokenizer is None:
        raise ArtifactError(
            "the checkpoint has no tokenizer",
            place=str(checkpoint),
            fix="use a checkpoint that Ingot wrote, or import one with its tokenizer",
        )
    check_divisible(model.config, config.mesh, sequence_length=config.sequence_length)
    fill = adapt(model, fill, config.lora, checkpoint, seed)
    return layout, model.to(device) if packed and layout is None else model, fill
