"""Declares the stages of this room: what follows pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ingot.train.stages import TrainingStage
from ingot.workspace.command import CommandOption
from ingot.workspace.stage import Stage, imported


class SynthesizeStage(Stage):
    """Write new documents from documents, and conversations that solve tasks of environments."""

    config = imported("ingot.post.synthesis.config:SynthesizeConfig")
    run = imported("ingot.post.synthesis.stage:run")
    needs: ClassVar[Mapping[str, str]] = {"documents": "documents", "checkpoint": "checkpoint"}
    optional = ("documents", "checkpoint")
    makes = ("documents", "conversations")


class SftStage(TrainingStage):
    """Fine-tune a checkpoint on conversations."""

    config = imported("ingot.post.sft_config:SftConfig")
    run = imported("ingot.post.sft:run")
    examples = imported("ingot.post.data.conversations.shown:examples")
    command_options = (
        CommandOption(
            "show", "N", "Print N examples as they will be trained on; train nothing.", int, minimum=1, prints=True
        ),
    )
    needs: ClassVar[Mapping[str, str]] = {"checkpoint": "checkpoint", "conversations": "conversations"}
    optional = ("conversations",)
    divides = True
    version = 4


class PreferStage(TrainingStage):
    """Train a checkpoint on pairs of answers: people's, two models' or its own (DPO and its kin)."""

    config = imported("ingot.post.prefer_config:PreferConfig")
    run = imported("ingot.post.prefer:run")
    memory = imported("ingot.post.data.pairs.memory:prefer_memory")
    needs: ClassVar[Mapping[str, str]] = {
        "checkpoint": "checkpoint",
        "reward_model": "reward_model",
        "strong": "checkpoint",
        "weak": "checkpoint",
    }
    optional = ("reward_model", "strong", "weak")
    divides = True
    version = 2


class RewardStage(TrainingStage):
    """Train a reward model on pairs of answers, or on answers with scores."""

    config = imported("ingot.post.reward_config:RewardConfig")
    run = imported("ingot.post.reward:run")
    makes = ("reward_model",)
    divides = True


class RlStage(TrainingStage):
    """Train a checkpoint by reinforcement learning on verifiable tasks (GRPO)."""

    config = imported("ingot.post.rl.config:RlConfig")
    run = imported("ingot.post.rl.stage:run")
    memory = imported("ingot.post.rl.memory:rl_memory")
    needs: ClassVar[Mapping[str, str]] = {"checkpoint": "checkpoint", "reward_model": "reward_model"}
    optional = ("reward_model",)
    leaves = ("metrics.jsonl", "trajectories.jsonl")
    divides = True
    version = 3


class DistillStage(TrainingStage):
    """Train a checkpoint on its own samples, or on conversations, graded by a teacher checkpoint or server."""

    config = imported("ingot.post.distill.config:DistillConfig")
    run = imported("ingot.post.distill.stage:run")
    memory = imported("ingot.post.distill.memory:distill_memory")
    needs: ClassVar[Mapping[str, str]] = {
        "checkpoint": "checkpoint",
        "teacher": "checkpoint",
        "conversations": "conversations",
    }
    optional = ("conversations",)
    several = ("teacher",)
    leaves = ("metrics.jsonl", "trajectories.jsonl")
    divides = True
    version = 2
