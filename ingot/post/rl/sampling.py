"""Training on the policy's own samples: RL and distillation differ only in what they stamp on each token.

Step s samples tasks drawn with seed (stage seed, s) from the weights of step s, stamps every sampled token with an
advantage, and hands the episodes to the trainer as they are: tokens are never decoded and encoded again. In the first update on
a batch of samples the policy π is the sampler μ; their ratio is therefore 1 for every token, and a run where it is not has a
sampler that computes something else than the trainer. The mean ratio alone cannot show this: the expectation of π/μ over what μ
samples is 1 for any two distributions. So the divergence of the two is checked as well. RL may make several updates on a batch
(source.py); then only the first has that ratio, as the versions of its tokens say.

Several processes share the sampling (processes.py); each makes the batches of the whole step and trains on its share of them.
What the policy says of its own answers, and what a reference says, comes from the divided models themselves (scorer.py).
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.inference.engine import Engine
from ingot.model.lora import adapters_off
from ingot.model.transformer import VALUE_HEAD, Transformer
from ingot.post.algorithm import Graded, SampledAlgorithm, Samples
from ingot.post.barrier import Between
from ingot.post.data.conversations.sequences import pack_groups
from ingot.post.distill.config import DistillConfig
from ingot.post.policy import chat_format
from ingot.post.processes import ALONE, Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.rl.checks import ratio as ratio_check
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.stamping import Rows, training_sequences
from ingot.post.rl.trajectories import RECORDED, Trajectories, choose_groups, describe
from ingot.post.samplers.failures import failed_places, unwritten_as_failed
from ingot.post.samplers.task_stream import ATTEMPT, RETRY, step_seed
from ingot.post.scorer import Scorer
from ingot.tokens.batch import Batch, TokenSequence
from ingot.tokens.syntax import Syntax
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.batches import deal
from ingot.train.device import FLOAT8, choose_device, choose_precision, choose_sampling_precision
from ingot.train.float8 import float8_layers
from ingot.train.losses.policy_gradient import TOKEN_MEAN, Aggregation
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective, Passes
from ingot.train.reference import FrozenModel
from ingot.train.source import Source
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder


@dataclass(frozen=True)
class Collected:
    """Samples that are stamped: the episodes, and the training sequences of each."""

    episodes: Sequence[Episode]
    sequences: Sequence[Sequence[TokenSequence]]
    metrics: dict[str, float]


class SampledSource(Source):
    """Samples a step's tasks and stamps what the algorithm says.

    `whole` is what is sampled from: `model` itself, unless several processes divide that. `frozen` is a whole teacher; without
    one the policy as it is at the start is the reference, if the algorithm wants one. `judge` may change what episodes earn
    (reward_model.py).
    """

    varies = True
    coins: str | None = None  # the seed of coin flips that stand in for the rewards (source.py)

    def __init__(
        self,
        model: Transformer,
        config: RlConfig | DistillConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        whole: Transformer | None = None,
        frozen: Transformer | None = None,
        judge: Judge | None = None,
    ) -> None:
        self.model, self.config, self.group, self.folder = model, config, config.group, folder
        self.algorithm: SampledAlgorithm = config.algorithm
        self.processes, self.whole, self.judge = processes, whole or model, judge
        self.chat = chat_format(model)
        self.mix, self.tools = TaskMix(config.tasks), find_tools(config.tools)
        self.trajectories = Trajectories(folder.path / "trajectories.jsonl", self.chat.tokenizer)
        self.device = choose_device(config.device)
        self.dtype = choose_precision(config.precision, self.device)
        self.sampling_dtype = choose_sampling_precision(config.sampling_precision, self.device)
        self.sampling_temperature = config.temperature
        self.limit = config.max_new_tokens
        self.drawn_at = time.monotonic()  # when samples were drawn last
        self.sampled_tokens = 0
        self.retried_groups = 0
        self.scorer: Scorer | None = None
        self.reference: FrozenModel | None = None
        self.frozen = None if frozen is None else self._scorer_of(self._passes(frozen))
        if processes.layout is None:  # the weights are here; those of a divided model come with the trainer
            self.begin(self._passes(model))

    def _passes(self, model: Transformer) -> Passes:
        return make_passes(model, Objective(()), self.device, self.dtype)

    def _scorer_of(self, passes: Passes) -> Scorer:
        return Scorer(passes, self.processes, self.config.sequence_length)

    def begin(self, passes: Passes) -> None:
        """The policy can score from now on; what is the reference is kept."""
        if self.scorer is not None:
            return
        self.scorer = self._scorer_of(passes)
        if self.frozen is None and self.algorithm.wants_reference and not self.is_reference_without_adapters:
            self.reference = FrozenModel(passes)
            self.frozen = self._scorer_of(self.reference.passes)

    @property
    def is_reference_without_adapters(self) -> bool:
        """With adapters the reference is the model without them, unless a later policy is to take its place."""
        return self.model.lora is not None and not self.algorithm.replaces_reference

    @property
    def policy(self) -> Scorer:
        """What the policy says of finished sequences."""
        assert self.scorer is not None, "a divided model has its weights from `begin` on"
        return self.scorer

    @cached_property
    def engine(self) -> Engine:
        """What is sampled with, where sampling and training alternate."""
        slots = -(-(self.config.slots or self.config.prompts_per_step * self.group) // self.processes.size)
        return Engine(self.whole, slots=slots, length=self.config.sequence_length, dtype=self.sampling_dtype)

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        sequences, metrics = self.sequences(step)
        sizes = self.config.sequence_length, self.config.micro_batch_tokens, world
        return deal(pack_groups([[each] for _, each in sequences], *sizes), rank, world), metrics

    def sequences(self, step: int) -> tuple[list[tuple[Task, TokenSequence]], dict[str, float]]:
        """What the policy of the step samples, stamped, each sequence with its task; and metrics."""
        made = self.collect(step)
        pairs = zip(made.episodes, made.sequences, strict=True)
        stamped = [(each.task, sequence) for each, listed in pairs for sequence in listed]
        return stamped, made.metrics | ratio_check.count_metrics([sequence for _, sequence in stamped], self.mean)

    @cached_property
    def mean(self) -> Aggregation:
        """What the loss and the metrics of its tokens are a mean over."""
        own = self.algorithm
        return own.mean(self.config) if isinstance(own, PolicyOptimization) else TOKEN_MEAN

    def collect(self, step: int) -> Collected:
        """Sample, and stamp what was sampled."""
        self.renew(step)
        episodes, metrics = self.timed_draw(step)
        _check_room(episodes, self.config.sequence_length)
        streams, found = self.streams(episodes)
        if -step % self.config.record_every < self.config.updates_per_batch:
            found |= self.measure(episodes)
            self._record(step, episodes, streams["advantage"])
        sequences = training_sequences(episodes, streams, self.group, self.algorithm)
        return Collected(episodes, sequences, metrics | found)

    def _record(self, step: int, episodes: Sequence[Episode], advantages: Rows) -> None:
        """Keep some groups of a batch in trajectories.jsonl."""
        wanted = self.config.record_groups or max(1, RECORDED // self.group)
        groups = choose_groups(self.folder.seed, step, len(episodes) // self.group, wanted)
        places = [group * self.group + place for group in groups for place in range(self.group)]
        kept = [episodes[place] for place in places]
        columns = self.recorded_columns(kept)
        stamped = [advantages[place] for place in places]
        self.processes.once(lambda: self.trajectories.record(step, kept, stamped, groups, columns))

    def measure(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Metrics of steps that are recorded."""
        return {}

    def renew(self, step: int) -> None:
        """Let the sampler have the weights of the policy as it is, which are those of `step`."""
        self.processes.renew(self.whole, self.model)
        self.engine.update(None, version=step)

    def timed_draw(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        """`draw`, with the idle shares of learner and sampler: in synchronous runs one always waits for the other."""
        before, began, self.retried_groups = self.sampled_tokens, time.monotonic(), 0
        episodes, metrics = self.draw(step)
        last, self.drawn_at = self.drawn_at, time.monotonic()
        share = (self.drawn_at - began) / (self.drawn_at - last)
        made = (self.sampled_tokens - before) / (self.drawn_at - began)
        times = {"learner_idle_share": share, "sampler_idle_share": 1 - share, "sampler_tokens_per_second": made}
        return episodes, metrics | times | {"retried_groups": float(self.retried_groups)}

    def draw(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        """The episodes of a step, `group` of each task after each other, and metrics of them."""
        prompts = self.config.prompts_per_step
        tasks = self.mix.generate(step_seed(self.folder.seed, step), prompts, "train", first=step * prompts)
        episodes = self.sample([task for task in tasks for _ in range(self.group)], step)
        return episodes, describe(episodes)

    def sample(
        self, tasks: Sequence[Task], step: int, attempt: int = 0, kinds: Mapping[str, Environment] | None = None
    ) -> list[Episode]:
        """Scored episodes of the current policy, one for every task; another `attempt` draws others.

        Those whose environment failed are sampled again, `retries` times at the most. `kinds` are the tasks' environments, if
        they are not those of the stage.
        """
        episodes = self._sample_once(tasks, step, attempt, kinds)
        for retry in range(1, self.config.retries + 1):
            failed = failed_places(episodes)
            if not failed:
                break
            self.retried_groups += len({place // self.group for place in failed})
            again = self._sample_once([tasks[place] for place in failed], step, attempt + retry * RETRY, kinds)
            for place, each in zip(failed, again, strict=True):
                episodes[place] = each
        return episodes

    def _sample_once(
        self, tasks: Sequence[Task], step: int, attempt: int, kinds: Mapping[str, Environment] | None
    ) -> list[Episode]:
        seed = step_seed(self.folder.seed, step) + attempt * ATTEMPT

        def sample_run(run: slice, between: Between) -> list[Episode]:
            episodes = rollout(
                tasks,
                self.engine,
                self.chat,
                self.mix.kinds if kinds is None else kinds,
                drawing=Drawing(self.sampling_temperature, seed=seed),
                limits=self.config.limits(self.limit),
                tools=self.tools,
                only=run,
                between=between,
            )
            episodes = unwritten_as_failed(episodes)
            return episodes if self.judge is None else self.judge(episodes, between)

        episodes = self.processes.share(len(tasks), sample_run)
        self.sampled_tokens += sum(each.sampled_count for each in episodes)
        return episodes

    def streams(self, episodes: Sequence[Episode]) -> tuple[dict[str, Rows], dict[str, float]]:
        """What is stamped on every token, by stream, and metrics of the algorithm."""
        if self.algorithm.rewarded:
            _check_reachable(episodes, self.chat.tokenizer)
        several = self.config.updates_per_batch > 1
        old = self.old_logprobs(episodes) if several and self.algorithm.wants_old else None
        frozen = cache(lambda: self.frozen_logprobs(episodes))  # one pass for all that need them
        samples = Samples(
            episodes,
            self.group,
            frozen_logprobs=frozen,
            old_logprobs=lambda: old or self.policy_logprobs(episodes),
            values=lambda: self.values(episodes),
            limit=self.limit,
            graded=lambda: self.graded(episodes),
            coins=self.coins,
        )
        streams, metrics = self.algorithm.streams(samples)
        if old is not None:
            streams["old_logprob"] = old
        if self.reads_reference:
            streams["reference_logprob"] = frozen()
        return streams, metrics

    @cached_property
    def reads_reference(self) -> bool:
        """Whether a term of the loss reads `reference_logprob`; what stands in the reward is no stream."""
        if not self.algorithm.wants_reference:
            return False
        return any("reference_logprob" in term.needs for term in self.algorithm.terms(self.model, self.config))

    def frozen_logprobs(self, episodes: Sequence[Episode]) -> Rows:
        """The log-probability of every token by the teacher or the reference.

        In the trainer's precision: rounded otherwise, equal models would differ.
        """
        if self.frozen is not None:
            return self.logprobs_by(self.frozen, episodes)
        if not self.algorithm.wants_reference:
            raise CheckFailed(
                f"{self.algorithm.algorithm} asks for the log-probabilities of a reference that it does not want",
                place=str(self.folder.path),
                fix="let its property wants_reference be true",
            )
        with adapters_off(self.model):
            return self.logprobs_by(self.policy, episodes)

    def graded(self, episodes: Sequence[Episode]) -> list[list[Graded]]:
        """What the teacher says of every sampled token."""
        rows = zip(episodes, self.frozen_logprobs(episodes), strict=True)
        return [token_grades(each.sampled(), row) for each, row in rows]

    def policy_logprobs(self, episodes: Sequence[Episode]) -> Rows:
        """log π_old where a batch has one update: the sampler's own, which has the same weights, unless one of them rounds."""
        if self.dtype == self.sampling_dtype == torch.float32:
            return [each.logprobs() for each in episodes]
        return self.old_logprobs(episodes)

    def old_logprobs(self, episodes: Sequence[Episode]) -> Rows:
        """The log-probability of every token by the policy as it is, in the trainer's precision."""
        return self.logprobs_by(self.policy, episodes)

    def recorded_columns(self, episodes: Sequence[Episode]) -> dict[str, Rows]:
        """What is recorded of every token beside what sampling and stamping know."""
        found = self.policy.logprobs_and_entropies(plain_sequences(episodes), self.sampling_temperature)
        logprobs, entropies = (by_episode(episodes, rows) for rows in found)
        return {"old_logprobs": logprobs, "entropies": entropies}

    def logprobs_by(self, model: Scorer, episodes: Sequence[Episode]) -> Rows:
        """The log-probability of every token of every episode."""
        return by_episode(episodes, model.logprobs(plain_sequences(episodes), self.sampling_temperature))

    def values(self, episodes: Sequence[Episode]) -> Rows:
        """What the value head says before every token."""
        return by_episode(episodes, self.policy.values(VALUE_HEAD, plain_sequences(episodes)))

    def check_ratio(self, step: int, metrics: dict[str, Any]) -> dict[str, float]:
        """After a step: the trainer must have seen the probabilities that the sampler reported, where versions say so."""
        if "ratio_mean" not in metrics or "sampler_divergence" not in metrics:
            raise CheckFailed(
                f"no loss term of {self.algorithm.algorithm} logs ratio_mean and sampler_divergence",
                place=str(self.folder.path),
                fix="let a term derive from PolicyGradient (train/losses/policy_gradient.py), which logs them",
            )
        if metrics.get("empty_step"):
            ratio_check.leave_out_means(metrics)
            return {}
        ratio, divergence, share = ratio_check.measured(metrics)
        if share < ratio_check.FEW or not ratio_check.is_present(metrics):
            return {}  # the policy has been updated since these tokens were sampled
        tokens = share * metrics.get("ratio_tokens", math.inf)
        trained = FLOAT8 if float8_layers(self.model) else self.dtype
        tolerance = max(ratio_check.DIVERGENCE_TOLERANCE[each] for each in (trained, self.sampling_dtype))
        problem = ratio_check.problem(ratio, divergence, tokens, tolerance)
        if problem is not None:
            raise CheckFailed(
                f"step {step}: the trainer does not see the probabilities that the sampler reported: {problem}",
                place=str(self.folder.path),
                fix="the sampler runs other weights, another temperature or another mask than the trainer",
            )
        return {"present_ratio_mean": ratio, "present_divergence": divergence} if "present_share" in metrics else {}


def token_grades(sampled: Sequence[int], row: Sequence[float]) -> list[Graded]:
    """Each sampled token by itself."""
    return [Graded(at, at + 1, row[at]) for at, one in enumerate(sampled) if one]


def plain_sequences(episodes: Sequence[Episode]) -> list[TokenSequence]:
    """Every segment as a sequence without streams."""
    return [TokenSequence(segment.tokens()) for each in episodes for segment in each.segments]


def by_episode(episodes: Sequence[Episode], rows: Rows) -> Rows:
    """Rows of segments as rows of whole episodes."""
    waiting = iter(rows)
    return [[value for _ in each.segments for value in next(waiting)] for each in episodes]


def _check_reachable(episodes: Sequence[Episode], tokenizer: Tokenizer) -> None:
    """Fail if a task asks for a trace of a model whose template has none: no answer could ever earn anything."""
    asking = next((each.task for each in episodes if each.task.thinking), None)
    if asking is not None and not Syntax.of(tokenizer.chat_template or "", tokenizer.special).thinks:
        raise CheckFailed(
            "the task asks for thinking, but the model's chat template has no traces: every answer would earn 0",
            place=asking.id,
            fix="choose tasks without it (no_think, or calculator with thinking: false), or a template that has them: "
            "`ingot model template`",
        )


def _check_room(episodes: Sequence[Episode], length: int) -> None:
    """Fail if a prompt leaves no room for an answer. An episode whose environment failed may have none for another reason."""
    for each in episodes:
        if not each.failed and not each.sampled_count and each.length >= length:
            raise CheckFailed(
                f"the prompt has {each.length} tokens and leaves no room for an answer in a row of {length}",
                place=each.task.id,
                fix="raise the stage's sequence_length, or leave such tasks out",
            )
