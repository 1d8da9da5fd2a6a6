"""The one frame of the post-training stages: begin from a checkpoint, make a source, train, tell what came of it.

A stage says where its batches come from (`source`), its algorithm says what the loss is (post/algorithms/); the rest is the same
for SFT, preferences, RL and distillation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from ingot.checkpoints.stored_model import StoredModel
from ingot.post.data.conversations.sequences import PoolSource
from ingot.post.distill.config import DistillConfig
from ingot.post.passes import in_steps
from ingot.post.prefer_config import PreferConfig
from ingot.post.processes import Processes, begin
from ingot.post.reward_config import RewardConfig
from ingot.post.rl.config import RlConfig
from ingot.post.sft_config import SftConfig
from ingot.train.loop import AfterStep, Trainer
from ingot.train.losses.terms import LossTerm
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder

Options = TypeVar("Options", SftConfig, PreferConfig, RewardConfig, RlConfig, DistillConfig)
FIFTH = 5  # of the steps, at the beginning and at the end, are averaged for a summary


class PostStage(ABC, Generic[Options]):
    """A post-training stage that has begun."""

    after_step: AfterStep | None = None  # what is checked after every step
    temperature: float = 1.0  # at which the trainer computes log-probabilities
    trainer: Trainer | None = None  # from its beginning on

    def __init__(self, config: Options, inputs: Mapping[str, Path], folder: StageFolder) -> None:
        self.config: Options = config
        self.inputs, self.folder = inputs, folder
        self.layout, self.model, self.fill = begin(config, inputs["checkpoint"], folder.seed, self.change)

    def change(self, stored: StoredModel) -> StoredModel:
        """The model that is trained, if it has more parts than the input checkpoint."""
        return stored

    @cached_property
    def processes(self) -> Processes:
        """The processes that share the sampling. They have a group of their own, which a stage that does not sample is spared."""
        return Processes(self.layout, self.folder.stop, self.alive)

    def alive(self) -> None:
        """Tell the watchdog that a step's data is still being made: to sample a batch may take longer than a hang."""
        if self.trainer is not None:
            self.trainer.heartbeat.beat("data")

    @abstractmethod
    def source(self) -> Source:
        """Where the batches come from."""

    @abstractmethod
    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        """What the stage tells of its result; `last` are the metrics of the last step."""

    def terms(self) -> list[LossTerm]:
        """What the loss is; asked for after the source is made."""
        return self.config.algorithm.terms(self.model, self.config)

    def run(self) -> dict[str, Any]:
        """Train; makes a checkpoint."""
        source = self.source()
        self.config = in_steps(self.config, source)
        self.reach(source.longest if isinstance(source, PoolSource) else self.config.sequence_length)
        if isinstance(source, PoolSource):
            for line in source.describe(self.config.steps):
                self.folder.progress.say(line)
        trainer = self.trainer = Trainer(
            self.model,
            self.terms(),
            source,
            self.config,
            self.folder,
            after_step=self.after_step,
            temperature=self.temperature,
            fill=self.fill,
            layout=self.layout,
        )
        try:
            last = trainer.run()
        finally:
            source.close()
        return self.summary(last)

    def reach(self, longest: int) -> None:
        """Texts of so many tokens are learnt: the result's context is at least that, as after pre-training on longer rows."""
        model = self.model.config
        if longest > model.context:
            self.folder.progress.say(
                f"texts of up to {longest:,} tokens, and the checkpoint has a context of {model.context:,}: the result's is "
                f"{longest:,}; the tokens beyond are new to it, which a pretrain stage with rope_base or rope_scaling prepares"
            )
            self.model.config = model.model_copy(update={"context": longest})

    def first_and_last(self, metric: str) -> tuple[float, float]:
        """A metric over the first and over the last fifth of the steps."""
        values = [row[metric] for row in self.processes.once(self.folder.metrics.read)]
        part = max(1, len(values) // FIFTH)
        return sum(values[:part]) / part, sum(values[-part:]) / part
