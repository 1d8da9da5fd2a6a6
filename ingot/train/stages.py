"""Declares the stages of this room: `pretrain` and `merge`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from ingot.workspace.draft import Draft, DraftStage, StageProblem
from ingot.workspace.estimates import StageCost
from ingot.workspace.stage import Stage, imported

if TYPE_CHECKING:
    from ingot.train.config import TrainingConfig


class TrainingStage(Stage):
    """Trains a checkpoint: the base of stages whose options derive from TrainingConfig and whose work is the Trainer's."""

    needs: ClassVar[Mapping[str, str]] = {"checkpoint": "checkpoint"}
    makes: tuple[str, ...] = ("checkpoint",)
    leaves: tuple[str, ...] = ("metrics.jsonl",)

    def check(self, stage: DraftStage, draft: Draft) -> Iterable[StageProblem]:
        """Mesh, optimizer and guards against the model, where the recipe says it."""
        from ingot.train.check import check_training

        return check_training(stage)

    def cost(self, config: TrainingConfig) -> StageCost:
        """As its options say."""
        return StageCost(config.steps or None, config.total_tokens)


class PretrainStage(TrainingStage):
    """Train a model on token shards, from scratch or from a checkpoint."""

    config = imported("ingot.train.pretrain_config:PretrainConfig")
    run = imported("ingot.train.pretrain:run")
    model = imported("ingot.train.check:pretrained_model")
    check = imported("ingot.train.check:check_pretraining")
    needs: ClassVar[Mapping[str, str]] = {"tokenizer": "tokenizer", "shards": "shards", "checkpoint": "checkpoint"}
    optional = ("checkpoint",)
    divides = True


class MergeStage(Stage):
    """Merge several checkpoints into one: mean, slerp, task arithmetic, TIES, DARE."""

    config = imported("ingot.checkpoints.merge_config:MergeConfig")
    run = imported("ingot.train.merge:run")
    command = None  # `ingot merge` takes models, not a file of options
    needs: ClassVar[Mapping[str, str]] = {"checkpoints": "checkpoint"}
    many = ("checkpoints",)
    makes = ("checkpoint",)
    leaves = ("checkpoint/manifest.json",)
    resumes = False
