"""Serve the batches of RL: answers that are collected at once (pipeline.py), over several updates.

    batch b of samples = prompts_per_step · mini_batches tasks, `group` answers to each
    step s             = update s mod u on batch s div u,      u = mini_batches · epochs

An update sees the tasks of one mini-batch; in epochs after the first they are mixed anew. The policy moves during the updates, so
π_old is stamped on the tokens when they are collected, and `staleness` counts the updates since then.

What cannot be made again from (seed, step, weights) is saved when a checkpoint is (state.py): the samples of a batch in use, a
replaced reference, the tasks that are solved, pass rates (curriculum/), what the canary has seen (checks/watch.py), the queue of
asynchronous samplers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.model.transformer import Transformer
from ingot.post.algorithm import RlAlgorithm
from ingot.post.data.conversations.conversation_file import file_conversations
from ingot.post.data.conversations.sequences import ShuffledPool, pack_groups
from ingot.post.policy import chat_format
from ingot.post.processes import ALONE, Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.rl.async_sampler import AsyncSampler
from ingot.post.rl.checks.divergence_from_start import StartPolicy, divergence, measured
from ingot.post.rl.checks.ratio import RatioCheck, count_metrics
from ingot.post.rl.checks.staleness import count_ages, staleness_metrics
from ingot.post.rl.checks.watch import Watch
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.difficulty import Difficulty
from ingot.post.rl.curriculum.offline_filter import NOTHING, Tried, drawn_kinds
from ingot.post.rl.curriculum.task_choice import TaskChoice
from ingot.post.rl.engine_sampler import EngineSampler
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.pipeline import BatchSampler, SampleBatch, SamplePipeline, groups_of
from ingot.post.rl.skip_zero_advantage import learns_by_advantage_alone, without_silent
from ingot.post.rl.state import HeldBatch, RlState
from ingot.post.rl.token_scores import TokenScores, logprobs_by
from ingot.tokens.batch import Batch, TokenSequence
from ingot.train.batches import deal
from ingot.train.losses.policy_gradient import TOKEN_MEAN, Aggregation
from ingot.train.passes import Passes
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder


class RlSource(Source):
    """Collects a batch when its first step is asked for, and serves it mini-batch by mini-batch."""

    varies = True
    may_be_empty = True  # a limit may have cut all answers of an update (mask_truncated), or their environments failed

    def __init__(
        self,
        model: Transformer,
        config: RlConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        whole: Transformer | None = None,
        judge: Judge | None = None,
        tried: Tried = NOTHING,
    ) -> None:
        """`whole` is what is sampled from: `model` itself, unless several processes divide that, or samplers are apart."""
        self.model, self.config, self.folder, self.processes = model, config, folder, processes
        self.rl: RlAlgorithm = config.algorithm
        self.leaves_out = not config.pass_all and learns_by_advantage_alone(self.rl, model)
        self.saved = RlState(folder.path / "rl_state", processes, config.checkpoints.keep)
        self.held: HeldBatch | None = None
        self.next_step = 0
        self.before: dict[str, Any] | None = None  # what was known when the batch that is being collected was begun
        self.reference_step = 0  # of the policy that is the reference
        self.start: StartPolicy | None = None
        self.kept = self._kept_conversations()
        self.pool = ShuffledPool(max(1, len(self.kept)), folder.seed)
        mix, difficulty = TaskMix(config.tasks, tried.dropped), config.difficulty
        self.choice = TaskChoice(
            config.exclude_solved,
            None if difficulty is None else Difficulty(difficulty, drawn_kinds(mix.kinds), folder.seed, tried.counts),
        )
        self.watch = None
        if config.canary is not None:
            self.watch = Watch(config.canary, config.tasks, config.group, folder, processes)
        self.scores = TokenScores(model, config, self.rl, processes)
        self.sampler = self._make_sampler(whole, judge, tried, mix)
        observers = [self.note_tasks, *([] if self.watch is None else [self.second_score])]
        self.pipeline = SamplePipeline(
            config,
            self.rl,
            folder,
            processes,
            self.sampler,
            self.scores,
            observers=observers,
            measures=[self.measure_start] if config.measure_start else [],
        )
        self.check_ratio = RatioCheck(model, self.rl, folder.path, self.scores.dtype, self.sampler.dtype)
        if processes.layout is None:  # the weights are here; those of a divided model come with the trainer
            self.begin()

    def _make_sampler(self, whole: Transformer | None, judge: Judge | None, tried: Tried, mix: TaskMix) -> BatchSampler:
        config, seed = self.config, self.folder.seed
        if config.asynchronous is None:
            return EngineSampler(
                self.model,
                whole,
                config,
                seed,
                self.processes,
                mix=mix,
                choice=self.choice,
                differ=self.differ,
                judge=judge,
            )
        return AsyncSampler(
            self.model,
            config,
            seed,
            self.processes,
            saved=self.saved,
            dropped=tried.dropped,
            listed=None if self.watch is None else self.watch.listed,
            choice=self.choice,
            differ=self.differ,
            judge=judge,
        )

    def begin(self, passes: Passes | None = None) -> None:
        if self.scores.scorer is not None:
            return
        self.scores.begin(passes)
        if self.config.measure_start:
            self.start = StartPolicy(self.scores.policy, None if self.rl.replaces_reference else self.scores.frozen)

    # ---- an update

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        sequences, metrics = self.update(step)
        if self.leaves_out:
            passed = without_silent(sequences, self.mean)
            metrics |= {"passed_share": len(passed) / len(sequences)}
            sequences = passed
        metrics |= count_metrics(sequences, self.mean)
        if self.config.ptx is not None:
            count = self.config.ptx.conversations
            sequences += [self.kept[self.pool[step * count + index]] for index in range(count)]
        sizes = self.config.sequence_length, self.config.micro_batch_tokens, world
        return deal(pack_groups([[each] for each in sequences], *sizes), rank, world), metrics

    def update(self, step: int) -> tuple[list[TokenSequence], dict[str, float]]:
        """The sequences of one update, and metrics."""
        number, update = divmod(step, self.config.updates_per_batch)
        begins = self.held is None or self.held.number != number
        self.sampler.renew(step, begins=begins)
        if self.config.temperature_end is not None:
            self.temperature = self.config.temperature_at(step - update)  # the trainer's, for this step
        if begins:
            self.held = self._collect(step, number, step - update)
        assert self.held is not None
        self.next_step = step + 1
        epoch, part = divmod(update, self.config.mini_batches)
        order = list(range(len(self.held.groups)))
        if epoch:
            random.Random(f"epoch/{self.folder.seed}/{number}/{epoch}").shuffle(order)
        prompts = self.config.prompts_per_step
        chosen = [self.held.groups[index] for index in order[part * prompts : (part + 1) * prompts]]
        asynchronous = self.config.asynchronous
        bound = None if asynchronous is None else asynchronous.staleness
        metrics = self.held.metrics | staleness_metrics(self.held.ages, step - self.held.version, bound)
        self.sampler.commit()  # a stop before this, also while a batch is stamped, leaves its groups in the queue
        return [sequence for group in chosen for sequence in group], metrics

    def _collect(self, step: int, number: int, first: int) -> HeldBatch:
        """Batch `number`, by the policy of this step; `first` is the step of its first update."""
        self.before = self._known()
        self._replace_reference(step)
        coins = None if self.config.spurious is None else f"{self.folder.seed}/{step}"
        temperature, limit = self.config.temperature_at(first), self.config.limit_at(first)
        made = self.pipeline.run(SampleBatch(step, temperature, limit, coins))
        size = self.config.group
        groups = [
            [sequence for each in made.sequences[start : start + size] for sequence in each]
            for start in range(0, len(made.sequences), size)
        ]
        held = HeldBatch(number, step, groups, made.metrics, count_ages(made.episodes, step))
        self.before = None
        return held

    @cached_property
    def mean(self) -> Aggregation:
        """What the loss and the metrics of its tokens are a mean over."""
        return self.rl.mean(self.config) if isinstance(self.rl, PolicyOptimization) else TOKEN_MEAN

    def _kept_conversations(self) -> list[TokenSequence]:
        if self.config.ptx is None:
            return []
        longest = self.config.sequence_length + 1  # the last token is only predicted
        chat = chat_format(self.model)
        return [each for name in self.config.ptx.files for each in file_conversations(Path(name), chat, longest)]

    # ---- the steps of the pipeline that only RL has

    def note_tasks(self, batch: SampleBatch) -> None:
        """Learn which tasks are solved, and how often."""
        groups = groups_of(batch.drawn, self.config.group)
        batch.metrics |= {"sampled_groups": float(len(groups))} | self.choice.note(batch.step, groups)

    def second_score(self, batch: SampleBatch) -> None:
        """Let the canary score what was drawn, or answers to held-out tasks."""
        assert self.watch is not None
        sample = partial(self.sampler.answer, batch=batch)
        batch.metrics |= self.watch.observe(batch.step, batch.drawn, self.rl.reward, sample)

    def measure_start(self, batch: SampleBatch) -> None:
        """Measure how far the policy has moved from the input checkpoint."""
        assert self.start is not None
        answers = measured(batch.episodes)
        with self.start.scorer() as start:
            before = logprobs_by(start, answers, batch.temperature)
        now = self.scores.policy_logprobs(answers, batch.temperature)
        batch.metrics["start_divergence"] = divergence(answers, now, before)

    def differ(self, group: Sequence[Episode]) -> bool:
        """Whether the answers to a task earn something different, before any penalty of length."""
        return len({self.rl.reward(each) for each in group if not each.failed}) > 1

    def _replace_reference(self, step: int) -> None:
        """Let the policy be the reference, if it is time."""
        every = self.rl.reference_every if isinstance(self.rl, PolicyOptimization) else None
        reference = self.scores.reference
        if reference is not None and every is not None and step // every > self.reference_step // every:
            reference.replace()
            self.reference_step = step

    # ---- checkpoints

    def state(self) -> dict[str, Any]:
        """Names of what is saved beside the checkpoint, and what is known of tasks.

        A run that stops while a batch is collected collects that batch again, so nothing of it may be saved.
        """
        used = self.held if self.held is not None and self.next_step % self.config.updates_per_batch else None
        reference = self.scores.reference if self.reference_step else None
        self.saved.write(used, reference, self.reference_step)
        return {
            "batch": None if used is None else used.number,
            "reference_step": self.reference_step,
            **(self._known() if self.before is None else self.before),
            **self.sampler.state(self.next_step),
        }

    def _known(self) -> dict[str, Any]:
        """What was learnt of tasks so far, as plain JSON."""
        return self.choice.state() | {"canary": {} if self.watch is None else self.watch.canary.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.saved.forget()
        self.before = None
        number, self.reference_step = state.get("batch"), state.get("reference_step", 0)
        self.choice.restore(state)
        if self.watch is not None:
            self.watch.restore(state.get("canary", {}))
        self.held = None if number is None else self.saved.read_batch(number)
        if self.reference_step and self.scores.reference is not None:
            self.saved.read_reference(self.scores.reference, self.reference_step)
        self.sampler.restore(state)

    def close(self) -> None:
        self.sampler.close()
