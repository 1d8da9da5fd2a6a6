"""Options of the stages that train on what the model itself samples: `rl` and `distill`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ingot.data.synthesize.config import EndpointConfig
from ingot.envs.config import TaskMixConfig
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.tools.find import ToolName
from ingot.post.algorithm import DISTILL, RL, DistillAlgorithm, DivergenceAlgorithm, RlAlgorithm
from ingot.post.conflicts import conflicts
from ingot.post.rl.checks.canary import CanaryConfig
from ingot.post.rl.curriculum.difficulty import DifficultyConfig
from ingot.post.rl.objective import ImportanceConfig, PolicyOptimization
from ingot.post.unread import refuse, unread
from ingot.tokens.template_files import is_jinja
from ingot.train.config import TrainingConfig
from ingot.workspace.config import Config
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import fingerprint

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
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


class SamplingConfig(TrainingConfig):
    """Training on what the model itself samples."""

    how: ClassVar[frozenset[str]] = TrainingConfig.how | {"slots"}
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

    @property
    def step_tokens(self) -> int:
        """A row for each sample at the most."""
        return self.prompts_per_step * self.group * self.sequence_length

    def outside(self) -> dict[str, str]:
        """The files of its tasks."""
        return self.tasks.outside()


class DynamicSamplingConfig(Config):
    """Tasks whose answers all earn the same teach nothing: others are sampled in their place (DAPO, arXiv 2503.14476)."""

    rounds: int = Field(10, gt=0, description="how often is sampled for a batch; 1: tasks are not replaced")
    ask: Literal["batch", "missing"] = Field(
        "batch",
        description="for how many tasks in a further round: a whole batch (DAPO), or those still missing (OLMo 3)",
    )


class RaySamplersConfig(Config):
    """Samplers as actors of a Ray cluster (`pip install -e ".[ray]"`)."""

    address: str = Field(
        "auto", description="of the cluster: `auto`, HOST:PORT, or `local`, which starts one on this machine"
    )
    cpus: int = Field(
        1, gt=0, description="processors that each sampler asks of the cluster; it samples with as many threads"
    )
    gpus: float | None = Field(
        None,
        ge=0,
        description="GPUs that each sampler asks of the cluster, or a fraction of one; 0: it samples on a CPU; null: `tensor` if "
        "the learner has one",
    )


class AsynchronousConfig(Config):
    """Samplers in processes of their own, which never wait for training (post/samplers/)."""

    moved: ClassVar[Mapping[str, str]] = {
        "slots": "slots: ... of the stage",
        "precision": "sampling_precision: ... of the stage",
    }
    how: ClassVar[frozenset[str]] = frozenset({"samplers", "tensor", "silence_seconds", "ray"})
    staleness: int = Field(
        4,
        gt=0,
        description="most updates between the weights that drew a token and those that learn from it, up to the last update on "
        "its batch; groups with an older token are dropped, and their tasks come again",
    )
    samplers: int = Field(1, gt=0, description="engines that sample, each with its own copy of the model")
    tensor: int = Field(
        1,
        gt=0,
        description="devices of one sampler: it divides heads, inner channels and vocabulary over so many processes, as "
        "mesh.tensor does in training; must divide the model's heads and widths",
    )
    silence_seconds: float = Field(
        300.0,
        gt=0,
        description="a sampler that gave no sign of life for so long is killed and started again; with `ray`, also how long the "
        "cluster may take to find a node for it",
    )
    ray: RaySamplersConfig | None = Field(
        None, description="samplers as actors of a Ray cluster; null: processes of this machine"
    )

    @model_validator(mode="after")
    def _has_gpus(self) -> AsynchronousConfig:
        gpus = None if self.ray is None else self.ray.gpus
        if self.tensor > 1 and gpus and gpus != self.tensor:
            raise ValueError(
                f"ray.gpus: a sampler over {self.tensor} devices asks for {self.tensor} GPUs, not {gpus:g}"
            )
        return self


class PtxConfig(Config):
    """Conversations that are kept in training: the loss is RL's + weight · −log p of what the assistant says in them.

    They are learnt at temperature 1, whatever answers are sampled at.
    """

    weight: float = Field(gt=0, description="coefficient of the loss")
    conversations: int = Field(gt=0, description="how many in one optimizer step")
    files: tuple[str, ...] = Field(min_length=1, description="JSONL files of conversations, as those of an sft stage")


class RlConfig(SamplingConfig):
    """Reinforcement learning with verifiable rewards."""

    how: ClassVar[frozenset[str]] = SamplingConfig.how | {"measure_start", "pass_all"}
    moved: ClassVar[Mapping[str, str]] = {
        key: f"algorithm: {{algorithm: grpo, {key}: ...}}"
        for key in ("clip_low", "clip_high", "divide_by_std", "reference_weight", "format_reward")
    }

    group: int = Field(
        8, gt=0, description="samples of each task; 1 for algorithms that do not compare them (ppo, reinforce_pp)"
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
        """The files of its tasks, of kept conversations, and of its template."""
        kept = () if self.ptx is None else self.ptx.files
        named = [*kept] if self.template is None or is_jinja(self.template) else [*kept, self.template]
        files = {name: fingerprint(Path(name)) for name in named if Path(name).is_file()}
        return super().outside() | files | ({} if self.canary is None else self.canary.outside())

    @model_validator(mode="after")
    def _as_its_algorithm_has_it(self) -> RlConfig:
        values = self.__dict__  # frozen, but it is still being made
        if self.algorithm.dynamic and "dynamic_sampling" not in self.model_fields_set:
            values["dynamic_sampling"] = DynamicSamplingConfig()
        if "mini_batches" not in self.model_fields_set and self.epochs == 1:
            allowed = self.algorithm.mini_batches
            if self.asynchronous is not None:
                allowed = min(allowed, max(1, (self.asynchronous.staleness + 1) // 2))
            values["mini_batches"] = allowed
        return self

    @model_validator(mode="after")
    def _can_be_asynchronous(self) -> RlConfig:
        if self.asynchronous is None:
            return self
        updates = self.updates_per_batch
        if self.asynchronous.staleness < 2 * updates - 1:
            raise ValueError(
                f"asynchronous.staleness: the samples of a batch are drawn during the {updates} updates on the one before, and "
                f"the last update on it comes {updates - 1} later; give at least {2 * updates - 1}"
            )
        own = self.algorithm
        chosen = "importance" in own.model_fields_set
        if isinstance(own, PolicyOptimization) and own.old_policy == "trainer" and not chosen:
            corrected = own.model_copy(update={"importance": ImportanceConfig()})
            self.__dict__["algorithm"] = corrected  # frozen, but it is still being made
        return self

    @model_validator(mode="after")
    def _without_conflicts(self) -> RlConfig:
        refuse(conflicts(self))
        return self

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """What a reward model gives has a weight where there is one."""
        if "reward_model" not in inputs:
            yield from unread(self, ("reward_model_weight",), "there is no reward_model in inputs")

    @model_validator(mode="after")
    def _can_be_spurious(self) -> RlConfig:
        if self.spurious is not None and not isinstance(self.algorithm, PolicyOptimization):
            raise ValueError(
                f"spurious: {self.algorithm.algorithm} takes its rewards itself; derive it from PolicyOptimization "
                "(ingot/post/rl/objective.py)"
            )
        by_rewards = "dynamic_sampling", "exclude_solved", "difficulty"
        chosen = [name for name in by_rewards if getattr(self, name) is not None]
        if self.spurious is not None and chosen:
            raise ValueError(
                f"spurious: a control may not know the rewards, by which {' and '.join(chosen)} would choose its tasks; set "
                + ", ".join(f"{name}: null" for name in chosen)
            )
        return self


class TeacherEndpointConfig(EndpointConfig):
    """A teacher on a server with OpenAI's completions API that scores the token ids of a prompt: `ingot serve`, or vLLM."""

    tokenizer: str | None = Field(
        None,
        description="folder with the tokenizer and the chat template of the server's model; null: it has the student's tokenizer",
    )


class DistillConfig(SamplingConfig):
    """Distillation: a teacher grades every token of the student's own samples, or of given conversations."""

    algorithm: Annotated[DistillAlgorithm, DISTILL] = Field(  # type: ignore[assignment]  # read by its name
        "reverse_kl", description="what is learnt from the teacher"
    )
    on_policy: float = Field(
        1.0,
        ge=0,
        le=1,
        description="chance that the answers of a step are the student's own samples, not conversations of `files` or of an "
        "earlier synthesize stage (λ of GKD)",
    )
    files: tuple[str, ...] = Field(
        (), description="JSONL files of conversations, as those of an sft stage, for steps that are not on-policy"
    )
    teachers: dict[str, tuple[str, ...]] = Field(
        {},
        description="several teachers: the kinds of tasks that each of them grades, by its name in inputs: "
        "{teacher: {NAME: STAGE}}",
    )

    endpoints: dict[str, TeacherEndpointConfig] = Field(
        {},
        description="teachers on servers by name, beside or in place of those in inputs; reverse_kl and top_k learn from them",
    )

    @model_validator(mode="after")
    def _servers_can_answer(self) -> DistillConfig:
        if not self.endpoints or not isinstance(self.algorithm, DivergenceAlgorithm):
            return self
        name = self.algorithm.algorithm
        if self.algorithm.likeliest is None:
            raise ValueError(
                f"endpoints: {name} compares whole distributions, which no server gives: use top_k or reverse_kl"
            )
        if self.temperature != 1.0:
            raise ValueError("endpoints: a server gives probabilities at temperature 1; leave temperature at 1")
        if any(each.tokenizer is not None for each in self.endpoints.values()):
            raise ValueError(f"endpoints: {name} compares token by token; with another tokenizer use reverse_kl")
        return self

    @model_validator(mode="after")
    def _reads_its_tasks(self) -> DistillConfig:
        if self.on_policy == 0:
            refuse(unread(self, OF_SAMPLES, "with on_policy: 0 nothing is sampled"))
        elif self.on_policy < 1 and "tasks" not in self.model_fields_set:
            raise ValueError(
                "tasks: there are conversations of one's own: say on which tasks the student samples beside them"
            )
        return self

    def supplies(self) -> frozenset[str]:
        """A server stands in for the input teacher."""
        return frozenset({"teacher"} if self.endpoints else ())

    @model_validator(mode="after")
    def _fits_its_algorithm(self) -> DistillConfig:
        compares = isinstance(self.algorithm, DivergenceAlgorithm)
        if self.temperature != 1.0 and not compares:
            raise ValueError(
                f"{self.algorithm.algorithm} compares log-probabilities at temperature 1; leave temperature at 1"
            )
        if self.on_policy < 1 and not compares:
            raise ValueError(f"{self.algorithm.algorithm} learns from the student's own samples; leave on_policy at 1")
        if self.files and self.on_policy == 1:
            raise ValueError("files: no step would read them; set on_policy below 1")
        if self.teachers and self.on_policy < 1:
            raise ValueError("teachers: given conversations have no task that says which teacher grades them")
        graded = [kind for kinds in self.teachers.values() for kind in kinds]
        if self.teachers and sorted(graded) != sorted(self.tasks.weights):
            raise ValueError(
                f"teachers: each of {', '.join(self.tasks.weights)} needs exactly one teacher; they have {', '.join(graded)}"
            )
        return self

    def teacher_of(self, kind: str) -> str:
        """The name of the teacher that grades tasks of a kind, by its short name."""
        return next(
            name for name, kinds in self.teachers.items() for written in kinds if self.tasks.kind(written).kind == kind
        )

    def check_teachers(self, names: Sequence[str]) -> None:
        """Fail unless the inputs and endpoints are the teachers that the options speak of."""
        if not names or len(set(names)) < len(names):
            raise RecipeError(
                "there is no teacher" if not names else f"two teachers have one name: {', '.join(sorted(names))}",
                place="distill",
                fix="give each a name of its own: inputs: {teacher: {NAME: STAGE}}, endpoints: {NAME: {url: URL, model: MODEL}}",
            )
        if (len(names) > 1 or self.teachers) and sorted(names) != sorted(self.teachers):
            raise RecipeError(
                f"the inputs have the teachers {', '.join(names)}; `teachers` has {', '.join(self.teachers) or 'none'}",
                place="teachers",
                fix="name the kinds of tasks of each: teachers: {NAME: [KIND, ...]}, inputs: {teacher: {NAME: STAGE}}",
            )

    def outside(self) -> dict[str, str]:
        """The files of its tasks, those of conversations, and the tokenizers of servers."""
        folders = [Path(each.tokenizer) for each in self.endpoints.values() if each.tokenizer is not None]
        named = [*map(Path, self.files), *(folder / name for folder in folders for name in TOKENIZER_FILES)]
        return super().outside() | {str(path): fingerprint(path) for path in named if path.is_file()}
