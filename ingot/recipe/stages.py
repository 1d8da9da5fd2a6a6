"""The one table of stage kinds: where each one's config and code live, what it needs and what it makes.

Both paths are imported separately, when needed: a recipe is checked with the config classes alone, which import torch only if a
stage has a model. `version` is part of a stage's hash: raise it when the same config means other work, so that old results are
not reused.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from ingot.workspace.config import Config
    from ingot.workspace.stage import Run


@dataclass(frozen=True)
class StageKind:
    """A kind of stage. `needs` maps a role ("checkpoint", "teacher") to the kind of artifact that fills it.

    `optional` roles may stay empty; one that is not called as its artifact is filled only where a recipe names it. `many` roles
    take every earlier artifact of their kind, as a mapping by stage name; `several` take one, or a mapping of names to several.
    """

    kind: str
    config_path: str
    run_path: str
    does: str
    makes: tuple[str, ...]
    needs: Mapping[str, str] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    many: tuple[str, ...] = ()
    several: tuple[str, ...] = ()
    version: int = 1
    divides: bool = False  # its work is divided over the processes of torchrun; other kinds run in the first one alone
    resumes: bool = True  # it saves parts of its work and resumes from them; other kinds start again
    leaves: tuple[str, ...] = ()  # below its folder when it is finished; the report names what is missing

    def config(self) -> type[Config]:
        """The config class."""
        return cast("type[Config]", _imported(self.config_path))

    def run_function(self) -> Run:
        """The function that does the work."""
        return cast("Run", _imported(self.run_path))


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
            run_path="ingot.data.curate:run",
            does="Read raw text, remove bad documents and copies.",
            makes=("documents",),
            leaves=("documents/funnel.json", "documents/removed.jsonl"),
            version=2,
        ),
        StageKind(
            "synthesize",
            config_path="ingot.post.synthesis.config:SynthesizeConfig",
            run_path="ingot.post.synthesis.stage:run",
            does="Write new documents from documents, and conversations that solve tasks of environments.",
            needs={"documents": "documents", "checkpoint": "checkpoint"},
            optional=("documents", "checkpoint"),
            makes=("documents", "conversations"),
        ),
        StageKind(
            "tokenizer",
            config_path="ingot.tokens.config:TokenizerConfig",
            run_path="ingot.tokens.train_tokenizer:run",
            does="Train a byte-level BPE tokenizer on documents.",
            needs={"documents": "documents"},
            makes=("tokenizer",),
            leaves=("tokenizer/statistics.json",),
            resumes=False,
        ),
        StageKind(
            "tokenize",
            config_path="ingot.tokens.config:TokenizeConfig",
            run_path="ingot.tokens.tokenize:run",
            does="Turn documents into token shards.",
            needs={"documents": "documents", "tokenizer": "tokenizer"},
            makes=("shards",),
            leaves=("shards/index.json",),
            version=2,
        ),
        StageKind(
            "pretrain",
            config_path="ingot.train.pretrain_config:PretrainConfig",
            run_path="ingot.train.pretrain:run",
            does="Train a model on token shards, from scratch or from a checkpoint.",
            needs={"tokenizer": "tokenizer", "shards": "shards", "checkpoint": "checkpoint"},
            optional=("checkpoint",),
            makes=("checkpoint",),
            leaves=("metrics.jsonl",),
            divides=True,
        ),
        StageKind(
            "sft",
            config_path="ingot.post.sft_config:SftConfig",
            run_path="ingot.post.sft:run",
            does="Fine-tune a checkpoint on conversations.",
            needs={"checkpoint": "checkpoint", "conversations": "conversations"},
            optional=("conversations",),
            makes=("checkpoint",),
            leaves=("metrics.jsonl",),
            divides=True,
            version=4,
        ),
        StageKind(
            "prefer",
            config_path="ingot.post.prefer_config:PreferConfig",
            run_path="ingot.post.prefer:run",
            does="Train a checkpoint on pairs of answers: people's, two models' or its own (DPO and its kin).",
            needs={
                "checkpoint": "checkpoint",
                "reward_model": "reward_model",
                "strong": "checkpoint",
                "weak": "checkpoint",
            },
            optional=("reward_model", "strong", "weak"),
            makes=("checkpoint",),
            leaves=("metrics.jsonl",),
            divides=True,
            version=2,
        ),
        StageKind(
            "reward",
            config_path="ingot.post.reward_config:RewardConfig",
            run_path="ingot.post.reward:run",
            does="Train a reward model on pairs of answers, or on answers with scores.",
            needs={"checkpoint": "checkpoint"},
            makes=("reward_model",),
            leaves=("metrics.jsonl",),
            divides=True,
        ),
        StageKind(
            "rl",
            config_path="ingot.post.rl.config:RlConfig",
            run_path="ingot.post.rl.stage:run",
            does="Train a checkpoint by reinforcement learning on verifiable tasks (GRPO).",
            needs={"checkpoint": "checkpoint", "reward_model": "reward_model"},
            optional=("reward_model",),
            makes=("checkpoint",),
            leaves=("metrics.jsonl", "trajectories.jsonl"),
            divides=True,
            version=3,
        ),
        StageKind(
            "distill",
            config_path="ingot.post.distill.config:DistillConfig",
            run_path="ingot.post.distill.stage:run",
            does="Train a checkpoint on its own samples, or on conversations, graded by a teacher checkpoint or server.",
            needs={"checkpoint": "checkpoint", "teacher": "checkpoint", "conversations": "conversations"},
            optional=("conversations",),
            several=("teacher",),
            makes=("checkpoint",),
            leaves=("metrics.jsonl", "trajectories.jsonl"),
            divides=True,
            version=2,
        ),
        StageKind(
            "eval",
            config_path="ingot.evals.config:EvalConfig",
            run_path="ingot.evals.evaluate:run",
            does="Measure a model with eval suites.",
            needs={"checkpoint": "checkpoint", "shards": "shards", "documents": "documents"},
            optional=("checkpoint", "shards", "documents"),
            makes=("scores",),
            leaves=("scores/scores.json", "scores/samples.jsonl"),
            version=2,
        ),
        StageKind(
            "choose",
            config_path="ingot.evals.config:ChooseConfig",
            run_path="ingot.evals.choose:run",
            does="Take the checkpoint of the step that scored best.",
            needs={"scores": "scores", "checkpoint": "checkpoint"},
            makes=("checkpoint",),
            leaves=("choice.json",),
            resumes=False,
        ),
        StageKind(
            "merge",
            config_path="ingot.checkpoints.merge_config:MergeConfig",
            run_path="ingot.train.merge:run",
            does="Merge several checkpoints into one: mean, slerp, task arithmetic, TIES, DARE.",
            needs={"checkpoints": "checkpoint"},
            many=("checkpoints",),
            makes=("checkpoint",),
            leaves=("checkpoint/manifest.json",),
            resumes=False,
        ),
        StageKind(
            "verdict",
            config_path="ingot.evals.config:VerdictConfig",
            run_path="ingot.evals.verdict:run",
            does="Check the claims of a recipe against the scores of its stages; fail if one does not hold.",
            needs={"scores": "scores"},
            many=("scores",),
            makes=("verdict",),
            leaves=("verdict/verdict.json",),
            resumes=False,
        ),
    )
}
