"""Declares the stages of this room: `pretrain` and `merge`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ingot.workspace.stage import Stage, imported


class PretrainStage(Stage):
    """Train a model on token shards, from scratch or from a checkpoint."""

    config = imported("ingot.train.pretrain_config:PretrainConfig")
    run = imported("ingot.train.pretrain:run")
    needs: ClassVar[Mapping[str, str]] = {"tokenizer": "tokenizer", "shards": "shards", "checkpoint": "checkpoint"}
    optional = ("checkpoint",)
    makes = ("checkpoint",)
    leaves = ("metrics.jsonl",)
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
