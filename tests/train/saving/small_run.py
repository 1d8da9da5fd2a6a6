"""A run in the small without the training loop: a tiny model, torch's AdamW, and steps made from their number alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.train.saving.config import CheckpointsConfig
from ingot.train.saving.saver import Saver
from ingot.workspace.progress import Progress
from tests.making.stages import stage_folder
from tests.model.tiny import config, random_model, random_tokens


class Run:
    """A model and its optimizer."""

    def __init__(self, seed: int = 1) -> None:
        self.model: Transformer = random_model(config(), seed=seed)
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, fused=True)

    def train(self, first: int, last: int) -> None:
        """Steps `first` to `last` − 1."""
        for step in range(first, last):
            self.model(random_tokens(2, 5, seed=step)).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def values(self) -> dict[str, Tensor]:
        """Copies of all that must come back."""
        values = {name: each.detach().clone() for name, each in self.model.state_dict().items()}
        for name, each in self.model.named_parameters():
            for part, value in self.optimizer.state.get(each, {}).items():
                values[f"{name}.{part}"] = torch.as_tensor(value).detach().clone()
        return values

    def save(self, saver: Saver, step: int, **training: Any) -> float:
        return saver.save(step, self.model, self.optimizer, training)

    def restore(self, saver: Saver) -> dict[str, Any] | None:
        return saver.restore(self.model, self.optimizer)


def make_saver(path: Path, progress: Progress | None = None, **options: Any) -> Saver:
    return Saver(stage_folder(path, progress), CheckpointsConfig.model_validate(options), None)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def names(path: Path) -> list[str]:
    """What lies in the folder of checkpoints."""
    return sorted(each.name for each in (path / "steps").iterdir())
