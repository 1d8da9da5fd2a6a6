"""Options of the post-training stages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from ingot.envs.config import TaskMixConfig
from ingot.envs.tools.find import ToolName
from ingot.post.algorithm import (
    DISTILL,
    PREFER,
    RL,
    SFT,
    DistillAlgorithm,
    PairAlgorithm,
    RlAlgorithm,
    SftAlgorithm,
)
from ingot.train.config import LanguageConfig, TrainingConfig
from ingot.workspace.files import fingerprint


class SftConfig(LanguageConfig):
    """Supervised fine-tuning on conversations, loss on assistant tokens only."""

    tasks: TaskMixConfig | None = Field(TaskMixConfig(), description="generated, verified conversations; null for none")
    task_conversations: int = Field(4000, ge=0, description="how many tasks are generated")
    follow_ups: float = Field(
        0.3,
        ge=0,
        le=1,
        description="chance that a task is asked as the next question of the conversation before it, of the same mode of "
        "thinking, where that fits into a row",
    )
    spare_tools: float = Field(
        0.0,
        ge=0,
        le=1,
        description="chance that a conversation whose tasks need no tool is offered those of the other tasks, as a chat offers "
        "them whatever is asked",
    )
    files: tuple[str, ...] = Field(
        (), description='JSONL files of conversations: {"messages": [...], "tools": [...], "thinking": true}'
    )
    file_share: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="smallest share of all conversations that those of the files have: fewer are repeated; 0: each once",
    )
    batch_conversations: int = Field(32, gt=0, description="conversations in one optimizer step")
    algorithm: Annotated[SftAlgorithm, SFT] = Field(  # type: ignore[assignment]  # read by its name
        "cross_entropy", description="what is learnt from the conversations"
    )

    @property
    def step_tokens(self) -> int:
        """A row for each conversation at the most."""
        return self.batch_conversations * self.sequence_length

    def outside(self) -> dict[str, str]:
        """The conversation files; one that is not there is an error when the stage reads it, with the file named."""
        read = {} if self.tasks is None else self.tasks.outside()
        return read | {name: fingerprint(Path(name)) for name in self.files if Path(name).is_file()}


class SamplingConfig(TrainingConfig):
    """Training on what the model itself samples."""

    tasks: TaskMixConfig = Field(TaskMixConfig(), description="the tasks it is sampled on")
    tools: tuple[ToolName, ...] = Field(
        (), description="tools that are offered beside a task's own: names, or file.py:function"
    )
    prompts_per_step: int = Field(8, gt=0, description="different tasks in one optimizer step")
    temperature: float = Field(1.0, gt=0, description="sampling temperature; the trainer uses the same")
    max_new_tokens: int = Field(64, gt=0, description="longest turn; a longer one is cut and counts as it stands")
    record_every: int = Field(10, gt=0, description="steps between rollouts kept in trajectories.jsonl")
    group: int = Field(1, gt=0, description="samples of each task")

    @property
    def step_tokens(self) -> int:
        """A row for each sample at the most."""
        return self.prompts_per_step * self.group * self.sequence_length

    def outside(self) -> dict[str, str]:
        """The files of its tasks."""
        return self.tasks.outside()


class PreferConfig(TrainingConfig):
    """Preferences on pairs of the model's own answers: right against wrong."""

    moved: ClassVar[Mapping[str, str]] = {
        key: f"algorithm: {{algorithm: dpo, {key}: ...}}" for key in ("beta", "length_normalised", "anchor")
    }

    tasks: TaskMixConfig = Field(TaskMixConfig(), description="the tasks that are answered")
    tools: tuple[ToolName, ...] = Field(
        (), description="tools that are offered beside a task's own: names, or file.py:function"
    )
    prompts: int = Field(128, gt=0, description="tasks that are sampled to find pairs")
    samples: int = Field(8, gt=1, description="answers to each task")
    temperature: float = Field(1.0, gt=0, description="sampling temperature for the answers")
    max_new_tokens: int = Field(64, gt=0, description="longest turn")
    length_gap: int = Field(100, ge=0, description="largest difference in tokens between the two answers of a pair")
    pairs_per_task: int = Field(2, gt=0, description="at most this many pairs from one task")
    batch_pairs: int = Field(16, gt=0, description="pairs in one optimizer step")
    algorithm: Annotated[PairAlgorithm, PREFER] = Field(  # type: ignore[assignment]  # read by its name
        "dpo", description="what is learnt from the pairs"
    )

    @property
    def step_tokens(self) -> int:
        """A row for each answer at the most."""
        return 2 * self.batch_pairs * self.sequence_length

    def outside(self) -> dict[str, str]:
        """The files of its tasks."""
        return self.tasks.outside()

    @model_validator(mode="after")
    def _whole_answers(self) -> PreferConfig:
        if self.mesh.context > 1:
            raise ValueError("mesh.context: preferences compare whole answers, which it would divide; set it to 1")
        return self


class RlConfig(SamplingConfig):
    """Reinforcement learning with verifiable rewards."""

    moved: ClassVar[Mapping[str, str]] = {
        key: f"algorithm: {{algorithm: grpo, {key}: ...}}"
        for key in ("clip_low", "clip_high", "divide_by_std", "reference_weight", "format_reward")
    }

    group: int = Field(8, gt=1, description="samples of each task; the advantage compares within the group")
    algorithm: Annotated[RlAlgorithm, RL] = Field(  # type: ignore[assignment]  # read by its name
        "grpo", description="what is learnt from the samples"
    )


class DistillConfig(SamplingConfig):
    """On-policy distillation: the student samples, the teacher grades every token (reverse KL as policy gradient)."""

    algorithm: Annotated[DistillAlgorithm, DISTILL] = Field(  # type: ignore[assignment]  # read by its name
        "reverse_kl", description="what is learnt from the teacher"
    )

    @model_validator(mode="after")
    def _same_temperature(self) -> DistillConfig:
        if self.temperature != 1.0:
            raise ValueError("distillation compares log-probabilities at temperature 1; leave temperature at 1")
        return self
