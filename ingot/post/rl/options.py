"""Hold the options of the stage `rl`; config.py checks what they are together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ingot.envs.rewards import RewardWeights
from ingot.post.algorithm import RL, RlAlgorithm
from ingot.post.rl.async_config import AsynchronousConfig
from ingot.post.rl.checks.canary import CanaryConfig
from ingot.post.rl.curriculum.difficulty import DifficultyConfig
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.sampling_config import DynamicSamplingConfig, SamplingConfig
from ingot.tokens.template_files import is_jinja
from ingot.workspace.config import Config
from ingot.workspace.files import fingerprint


class PtxConfig(Config):
    """Conversations that are kept in training: the loss is RL's + weight · −log p of what the assistant says in them.

    They are learnt at temperature 1, whatever answers are sampled at.
    """

    weight: float = Field(gt=0, description="coefficient of the loss")
    conversations: int = Field(gt=0, description="how many in one optimizer step")
    files: tuple[str, ...] = Field(min_length=1, description="JSONL files of conversations, as those of an sft stage")


class RlOptions(SamplingConfig):
    """The options, and what follows from each."""

    how: ClassVar[frozenset[str]] = SamplingConfig.how | {"measure_start", "pass_all"}
    moved: ClassVar[Mapping[str, str]] = {
        key: f"algorithm: {{algorithm: grpo, {key}: ...}}"
        for key in ("clip_low", "clip_high", "divide_by_std", "reference_weight", "format_reward")
    }

    group: int = Field(
        8, gt=0, description="samples of each task; 1 for algorithms that do not compare them (ppo, reinforce_pp)"
    )
    rewards: RewardWeights = Field(
        {},
        description="functions of yours that grade finished episodes: [file.py:brevity], or with weights {file.py:brevity: "
        "0.2}. What they give, times their weights, is added to what the task gives (its own weight: {task: 0})",
    )
    reward_model_weight: float = Field(
        1.0, description="with an input reward_model: what it gives, times this, is added to the reward of the task"
    )
    algorithm: Annotated[RlAlgorithm, RL] = Field(  # type: ignore[assignment]  # read by its name
        "grpo", description="what is learnt from the samples"
    )
    spurious: Literal["random"] | None = Field(
        None,
        description="negative control: coin flips with the batch's mean stand in for the rewards, so that a score which still "
        "rises does not come from them (say so in the verdict: not_above); nothing else may choose tasks by their rewards. null: "
        "the rewards of the tasks",
    )
    template: str | None = Field(
        None,
        description="the prompt of a model without a chat template, or another one: plain, r1_zero, a chat template's name, a "
        "Jinja file, or Jinja itself; the result keeps it. null: the model's own",
    )
    mini_batches: int = Field(
        1,
        gt=0,
        description="optimizer steps into which a batch of samples is divided: prompts_per_step times this are sampled at once. "
        "Left out: 4 for dapo, gspo, cispo and sapo, which act from the second step on (asynchronous: at most what staleness "
        "allows), 1 for the others",
    )
    epochs: int = Field(1, gt=0, description="passes over the samples")
    dynamic_sampling: DynamicSamplingConfig | None = Field(
        None,
        description="replace tasks whose answers earn all the same; null: do not. Left out: as the algorithm has it (dapo: on)",
    )
    exclude_solved: float | None = Field(
        None, gt=0, le=1, description="a task of whose answers this share was right is not asked again (OLMo 3: 0.875)"
    )
    temperature_end: float | None = Field(
        None,
        gt=0,
        description="temperature of the last step, to which it falls in a straight line (Kimi K2); null: constant. "
        "Asynchronous samples have that of the step that asked for them, and importance weights cover the difference",
    )
    asynchronous: AsynchronousConfig | None = Field(
        None,
        description="sample and train at the same time; null: by turns, which repeats to the bit. With it `importance` of the "
        "algorithm is on unless it is given, or the ratio is over the sampler (old_policy): truncated importance sampling",
    )
    difficulty: DifficultyConfig | None = Field(
        None,
        description="filters and a curriculum by how often tasks are solved; null: all tasks, as tasks.weights say",
    )
    canary: CanaryConfig | None = Field(
        CanaryConfig(), description="a second score of the policy, and an alarm if it falls while the reward rises"
    )
    measure_start: bool = Field(
        True,
        description="with every record of rollouts measure the policy's divergence from the input checkpoint, whose weights wait "
        "in the host's memory",
    )
    pass_all: bool = Field(
        False,
        description="run answers through the model from which nothing is learnt, too (all answers to their task earn the same): "
        "entropy, ratios and divergence are then means over all answers; the gradient is the same",
    )
    longer_from: dict[int, int] = Field({}, description="max_new_tokens from a step on: {8200: 65536} (R1)")
    ptx: PtxConfig | None = Field(
        None, description="a loss on kept conversations beside that of RL (Kimi K2); null: none"
    )

    @property
    def updates_per_batch(self) -> int:
        """Optimizer steps on what was sampled at once."""
        return self.mini_batches * self.epochs

    def sampler_slots(self, samplers: int) -> int:
        """Answers that each of so many asynchronous samplers has in work."""
        return -(-(self.slots or self.prompts_per_step * self.mini_batches * self.group) // samplers)

    @property
    def sampler_tensor(self) -> int:
        """Over how many devices a sampler is divided."""
        return 1 if self.asynchronous is None else self.asynchronous.tensor

    @property
    def prompts_per_batch(self) -> int:
        """Tasks that are sampled at once."""
        return self.prompts_per_step * self.mini_batches

    @property
    def step_tokens(self) -> int:
        """A row for each sample and each kept conversation at the most."""
        return super().step_tokens + (0 if self.ptx is None else self.ptx.conversations * self.sequence_length)

    @property
    def budgets(self) -> Mapping[str, int]:
        """Those of the algorithm's token budget."""
        own = self.algorithm.token_budget if isinstance(self.algorithm, PolicyOptimization) else None
        return {} if own is None else own.tokens

    @property
    def refill(self) -> DynamicSamplingConfig | None:
        """How tasks without a difference are replaced."""
        return self.dynamic_sampling

    def temperature_at(self, step: int) -> float:
        """The sampling temperature of a step."""
        if self.temperature_end is None or self.steps == 1:
            return self.temperature
        return self.temperature + (self.temperature_end - self.temperature) * min(1.0, step / (self.steps - 1))

    def limit_at(self, step: int) -> int:
        """The longest turn of a step."""
        begun = [first for first in self.longer_from if first <= step]
        return self.longer_from[max(begun)] if begun else self.max_new_tokens

    def outside(self) -> dict[str, str]:
        """The files of its tasks, of kept conversations, of its template, and of a transport."""
        kept = () if self.ptx is None else self.ptx.files
        named = [*kept] if self.template is None or is_jinja(self.template) else [*kept, self.template]
        files = {name: fingerprint(Path(name)) for name in named if Path(name).is_file()}
        within = [each for each in (self.canary, self.asynchronous) if each is not None]
        return super().outside() | files | {name: found for each in within for name, found in each.outside().items()}
