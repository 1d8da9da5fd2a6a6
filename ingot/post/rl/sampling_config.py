"""Hold the options that `rl` and `distill` share: both train on what the model itself samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from ingot.envs.config import TaskMixConfig
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.tools.find import ToolName
from ingot.train.config import TrainingConfig
from ingot.workspace.config import Config

OF_SAMPLES = (
    *(
        "tasks",
        "tools",
        "max_new_tokens",
        "slots",
        "sampling_precision",
        "record_every",
        "record_groups",
        "episode_seconds",
    ),
    *("retries", "stop"),
)


class DynamicSamplingConfig(Config):
    """Tasks whose answers all earn the same teach nothing: others are sampled in their place (DAPO, arXiv 2503.14476)."""

    rounds: int = Field(10, gt=0, description="how often is sampled for a batch; 1: tasks are not replaced")
    ask: Literal["batch", "missing"] = Field(
        "batch",
        description="for how many tasks in a further round: a whole batch (DAPO), or those still missing (OLMo 3)",
    )


class SamplingConfig(TrainingConfig):
    """Training on what the model itself samples."""

    how: ClassVar[frozenset[str]] = TrainingConfig.how | {"slots"}
    sequence_length: int = Field(1024, gt=1, description="positions in a packed row: a prompt and its answer must fit")
    tasks: TaskMixConfig = Field(TaskMixConfig(), description="the tasks it is sampled on")
    tools: tuple[ToolName, ...] = Field(
        (), description="tools that are offered beside a task's own: names, or file.py:function"
    )
    prompts_per_step: int = Field(8, gt=0, description="different tasks in one optimizer step")
    temperature: float = Field(1.0, gt=0, description="sampling temperature; the trainer uses the same")
    max_new_tokens: int = Field(64, gt=0, description="longest turn; a longer one is cut and counts as it stands")
    slots: int | None = Field(
        None,
        gt=0,
        description="answers that are sampled at once by all samplers together; null: those of an optimizer step (asynchronous: "
        "of a batch)",
    )
    sampling_precision: Literal["auto", "float32", "bfloat16", "float8"] = Field(
        "auto",
        description="of the weights that are sampled with; auto: bfloat16 on a GPU, from a copy, and float32 on a CPU; float8: "
        "the products of large layers, which pays with a width of 4096, and with 2048 from about a thousand answers at once on",
    )
    record_every: int = Field(10, gt=0, description="steps between rollouts kept in trajectories.jsonl")
    record_groups: int | None = Field(
        None,
        gt=0,
        description="tasks of such a step whose answers are kept, all of each; null: as many as have 16 answers, at least one",
    )
    group: int = Field(1, gt=0, description="samples of each task")
    episode_seconds: float = Field(
        3600.0,
        gt=0,
        description="deadline of an episode, its tools included and waiting for a slot left out; it then ends and counts as it "
        "stands",
    )
    retries: int = Field(
        2,
        ge=0,
        description="how often answers whose environment failed are sampled again; those that fail each time are left out of "
        "their group",
    )

    stop: tuple[str, ...] = Field(
        (),
        description="texts that end a turn, beside the template's token, which a base model seldom writes; no part of the answer",
    )

    def limits(self, max_new_tokens: int) -> Limits:
        """The limits of an episode with turns of so many tokens."""
        seconds = self.episode_seconds
        return Limits(
            max_new_tokens, self.sequence_length, stops=self.stop, episode_seconds=seconds, budgets=self.budgets
        )

    @property
    def budgets(self) -> Mapping[str, int]:
        """The most sampled tokens of an episode, by kind of task."""
        return {}

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps on what was sampled at once."""
        return 1

    def engine_slots(self, processes: int) -> int:
        """Answers that each process samples at once, where sampling and training alternate."""
        return -(-(self.slots or self.prompts_per_step * self.group) // processes)

    @property
    def prompts_per_batch(self) -> int:
        """Tasks that are sampled at once."""
        return self.prompts_per_step

    @property
    def refill(self) -> DynamicSamplingConfig | None:
        """How tasks without a difference are replaced; None: they are not."""
        return None

    def temperature_at(self, step: int) -> float:
        """The sampling temperature of a step."""
        return self.temperature

    def limit_at(self, step: int) -> int:
        """The longest turn of a step."""
        return self.max_new_tokens

    @property
    def step_tokens(self) -> int:
        """A row for each sample at the most."""
        return self.prompts_per_step * self.group * self.sequence_length

    def outside(self) -> dict[str, str]:
        """The files of its tasks."""
        return self.tasks.outside()
