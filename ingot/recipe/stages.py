"""The one table of stage kinds: where each one's config and code live, what it needs and what it makes.

Both paths are imported only when asked for, apart from each other: a recipe is checked with the config classes alone, which
import torch only where a stage holds a model. `needs`, `makes`, `optional` and `many` repeat what the `STAGE` object in the
heavy module says; a test compares the two. `version` is part of a stage's hash: raise it when the same config begins to mean
other work, and results of the old meaning are no longer reused.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ingot.workspace.config import Config
    from ingot.workspace.stage import Stage


@dataclass(frozen=True)
class StageKind:
    """What can be known of a stage kind without importing its code. The roles are explained in workspace/stage.py."""

    kind: str
    config_path: str
    stage_path: str
    does: str
    makes: tuple[str, ...]
    needs: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    version: int = 1
    divides: bool = False  # its work is divided over the processes of torchrun; other kinds run in the first one alone
    resumes: bool = True  # it saves parts of its work, and goes on from them; other kinds begin again

    def config(self) -> type[Config]:
        """The config class."""
        return cast("type[Config]", _imported(self.config_path))

    def stage(self) -> Stage:
        """The stage itself, with the code that runs it."""
        return cast("Stage", _imported(self.stage_path))


def _imported(path: str) -> object:
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


Table = Mapping[str, StageKind]

STAGES: Table = {
    kind.kind: kind
    for kind in (
        StageKind(
            "curate",
            config_path="ingot.data.config:CurateConfig",
            stage_path="ingot.data.curate:STAGE",
            does="Read raw text and keep the good documents.",
            makes=("documents",),
        ),
        StageKind(
            "synthesize",
            config_path="ingot.data.synthesize.config:SynthesizeConfig",
            stage_path="ingot.inference.synthesize:STAGE",
            does="Make documents from documents: rephrase, translate, ask about them.",
            needs={"documents": "documents", "checkpoint": "checkpoint"},
            optional=("checkpoint",),
            makes=("documents",),
        ),
        StageKind(
            "tokenizer",
            config_path="ingot.tokens.config:TokenizerConfig",
            stage_path="ingot.tokens.train_tokenizer:STAGE",
            does="Train a byte-level BPE tokenizer on documents.",
            needs={"documents": "documents"},
            makes=("tokenizer",),
            resumes=False,
        ),
        StageKind(
            "tokenize",
            config_path="ingot.tokens.config:TokenizeConfig",
            stage_path="ingot.tokens.tokenize:STAGE",
            does="Turn documents into token shards.",
            needs={"documents": "documents", "tokenizer": "tokenizer"},
            makes=("shards",),
            version=2,
        ),
        StageKind(
            "pretrain",
            config_path="ingot.train.pretrain_config:PretrainConfig",
            stage_path="ingot.train.pretrain:STAGE",
            does="Train a model on token shards, from the start or from a checkpoint.",
            needs={"tokenizer": "tokenizer", "shards": "shards", "checkpoint": "checkpoint"},
            optional=("checkpoint",),
            makes=("checkpoint",),
            divides=True,
        ),
        StageKind(
            "sft",
            config_path="ingot.post.config:SftConfig",
            stage_path="ingot.post.sft:STAGE",
            does="Fine-tune on conversations.",
            needs={"checkpoint": "checkpoint"},
            makes=("checkpoint",),
            divides=True,
        ),
        StageKind(
            "prefer",
            config_path="ingot.post.config:PreferConfig",
            stage_path="ingot.post.prefer:STAGE",
            does="Optimise preferences between pairs of answers.",
            needs={"checkpoint": "checkpoint"},
            makes=("checkpoint",),
            divides=True,
        ),
        StageKind(
            "rl",
            config_path="ingot.post.config:RlConfig",
            stage_path="ingot.post.rl:STAGE",
            does="Reinforcement learning on verifiable tasks.",
            needs={"checkpoint": "checkpoint"},
            makes=("checkpoint",),
            divides=True,
        ),
        StageKind(
            "distill",
            config_path="ingot.post.config:DistillConfig",
            stage_path="ingot.post.distill:STAGE",
            does="On-policy distillation from a teacher checkpoint.",
            needs={"checkpoint": "checkpoint", "teacher": "checkpoint"},
            makes=("checkpoint",),
            divides=True,
        ),
        StageKind(
            "eval",
            config_path="ingot.evals.config:EvalConfig",
            stage_path="ingot.evals.evaluate:STAGE",
            does="Measure a checkpoint on held-out tasks and text.",
            needs={"checkpoint": "checkpoint", "shards": "shards"},
            makes=("scores",),
            resumes=False,
        ),
        StageKind(
            "verdict",
            config_path="ingot.evals.config:VerdictConfig",
            stage_path="ingot.evals.verdict:STAGE",
            does="Check the claims of a recipe against the scores of its stages.",
            needs={"scores": "scores"},
            many=("scores",),
            makes=("verdict",),
            resumes=False,
        ),
    )
}
