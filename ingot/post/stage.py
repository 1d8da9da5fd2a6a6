"""The one frame of the post-training stages: begin from a checkpoint, make a source, train, tell what came of it.

A stage says where its batches come from (`source`), its algorithm says what the loss is (post/algorithms/); the rest is the same
for SFT, preferences, RL and distillation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from ingot.post.config import DistillConfig, PreferConfig, RlConfig, SftConfig
from ingot.post.processes import Processes, begin
from ingot.train.loop import AfterStep, Trainer
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder

Options = TypeVar("Options", SftConfig, PreferConfig, RlConfig, DistillConfig)
FIFTH = 5  # of the steps, at the beginning and at the end, are averaged for a summary


class PostStage(ABC, Generic[Options]):
    """A post-training stage that has begun: the model that it trains, and the processes that share its work."""

    after_step: AfterStep | None = None  # what is checked after every step
    temperature: float = 1.0  # at which the trainer computes log-probabilities

    def __init__(self, config: Options, inputs: Mapping[str, Path], folder: StageFolder) -> None:
        self.config, self.inputs, self.folder = config, inputs, folder
        self.layout, self.model, self.fill = begin(config, inputs["checkpoint"])
        self.processes = Processes(self.layout, folder.stop)

    @abstractmethod
    def source(self) -> Source:
        """Where the batches come from."""

    @abstractmethod
    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        """What the stage tells of its result; `last` are the metrics of the last step."""

    def run(self) -> dict[str, Any]:
        """Train; makes a checkpoint."""
        source = self.source()
        trainer = Trainer(
            self.model,
            self.config.algorithm.terms(self.model, self.config),
            source,
            self.config,
            self.folder,
            after_step=self.after_step,
            temperature=self.temperature,
            fill=self.fill,
            layout=self.layout,
        )
        return self.summary(trainer.run())

    def first_and_last(self, metric: str) -> tuple[float, float]:
        """A metric over the first and over the last fifth of the steps."""
        values = [row[metric] for row in self.processes.once(self.folder.metrics.read)]
        part = max(1, len(values) // FIFTH)
        return sum(values[:part]) / part, sum(values[-part:]) / part
