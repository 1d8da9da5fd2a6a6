"""Hooks around the update: when they run, what they see, and what a checkpoint keeps of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from ingot.train.hooks import Hook, OptimizerStep
from ingot.workspace.stage import StageFolder
from tests.train.toy import make_trainer


class Witness(Hook):
    """Notes the weights before and after every update, and counts the steps it has seen."""

    name = "witness"

    def __init__(self) -> None:
        self.weight: torch.Tensor | None = None
        self.moves: list[float] = []
        self.count = 0

    def before_update(self, step: OptimizerStep) -> None:
        assert self.weight is not None and self.weight.grad is not None
        self.before = self.weight.detach().clone()

    def after_update(self, step: OptimizerStep) -> None:
        assert self.weight is not None and self.weight.grad is None
        self.moves.append(float((self.weight.detach() - self.before).norm()))
        self.count += 1
        step.metrics["seen"] = torch.tensor(float(self.count))
        assert step.number == self.count - 1 and float(step.taken) == 1 and float(step.norm) > 0

    def state(self) -> dict[str, Any]:
        return {"count": self.count}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


def run(folder: StageFolder, steps: int) -> Witness:
    hook = Witness()
    trainer = make_trainer(folder, steps=steps, checkpoints={"every": 2}, hooks=[hook])
    hook.weight = trainer.model.embedding.weight
    trainer.run()
    return hook


def test_a_hook_sees_both_sides_of_every_update(folder: StageFolder) -> None:
    hook = run(folder, 3)
    assert len(hook.moves) == 3 and all(move > 0 for move in hook.moves)
    assert [row["seen"] for row in folder.metrics.read()] == [1, 2, 3]


def test_what_a_hook_keeps_comes_back_with_the_checkpoint(folder: StageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run breaks after the checkpoint of step 2 and goes on: the count does, too."""
    monkeypatch.setattr(Witness, "before_update", broken_at(3))
    with pytest.raises(RuntimeError, match="broken"):
        run(folder, 4)
    monkeypatch.undo()
    hook = run(folder, 4)
    assert len(hook.moves) == 2 and hook.count == 4
    assert [row["seen"] for row in folder.metrics.read()] == [1, 2, 3, 4]


def broken_at(step: int) -> Any:
    before_update = Witness.before_update

    def broken(self: Witness, given: OptimizerStep) -> None:
        if given.number == step:
            raise RuntimeError("broken")
        before_update(self, given)

    return broken
