"""The batches of RL: samples that are collected at once and served over several updates.

    batch b of samples = prompts_per_step · mini_batches tasks, `group` answers to each
    step s             = update s mod u on batch s div u,      u = mini_batches · epochs

An update sees the tasks of one mini-batch; in epochs after the first they are mixed anew. The policy moves during the updates, so
π_old is stamped on the tokens when they are collected (sampling.py), and `staleness` counts the updates since then.

Dynamic sampling replaces tasks whose answers all earn the same, in rounds. What a round asks is a function of (seed, step,
round), so it depends neither on the number of processes nor on what finishes first. If rounds run out, such tasks fill the batch.

What cannot be made again from (seed, step, weights) is saved when a checkpoint is (state.py): the samples of a batch in use, a
replaced reference, the tasks that are solved, pass rates (curriculum/difficulty.py), what the canary has seen (checks/watch.py).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.task import Task
from ingot.model.transformer import Transformer
from ingot.post.algorithm import RlAlgorithm
from ingot.post.data.conversations.conversation_file import file_conversations
from ingot.post.data.conversations.sequences import ShuffledPool, pack_groups
from ingot.post.processes import ALONE, Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.rl.checks import ratio as ratio_check
from ingot.post.rl.checks.divergence_from_start import StartPolicy, divergence, measured
from ingot.post.rl.checks.staleness import count_ages, staleness_metrics
from ingot.post.rl.checks.watch import Watch
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.difficulty import Difficulty
from ingot.post.rl.curriculum.offline_filter import NOTHING, Tried, drawn_kinds
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.sampling import SampledSource
from ingot.post.rl.skip_zero_advantage import learns_by_advantage_alone, without_silent
from ingot.post.rl.stamping import Rows
from ingot.post.rl.state import HeldBatch, RlState
from ingot.post.rl.trajectories import describe
from ingot.post.samplers.task_stream import step_seed
from ingot.tokens.batch import Batch, TokenSequence
from ingot.train.batches import deal
from ingot.train.passes import Passes
from ingot.workspace.stage import StageFolder

TRIES = 10  # draws of tasks in search of those that are wanted
HELD_OUT = 1_000  # the attempt of a step that answers held-out tasks; rounds of dynamic sampling are fewer
KINDS_SEQUENCE = 10_000  # places at which a further round may enter the sequence of kinds (envs/mix.py)


class RlSource(SampledSource):
    """Samples a batch when its first step is asked for, and serves it mini-batch by mini-batch."""

    may_be_empty = True  # a limit may have cut all answers of an update (mask_truncated), or their environments failed
    bound: int | None = None  # on the age of samples, where they may be older than the policy (async_source.py)

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
        self.start: StartPolicy | None = None
        self.measures_start = config.measure_start
        super().__init__(model, config, folder, processes, whole, judge=judge)
        self.dropped = tried.dropped
        if self.dropped:
            self.mix = TaskMix(config.tasks, self.dropped)
        self.options = config
        self.rl: RlAlgorithm = config.algorithm
        self.leaves_out = not config.pass_all and learns_by_advantage_alone(self.rl, model)
        self.saved = RlState(folder.path / "rl_state", processes, config.checkpoints.keep)
        self.held: HeldBatch | None = None
        self.next_step = 0
        self.solved: set[str] = set()
        self.before: dict[str, Any] | None = None  # what was known when the batch that is being collected was begun
        self.reference_step = 0  # of the policy that is the reference
        self.difficulty = None
        if config.difficulty is not None:
            self.difficulty = Difficulty(config.difficulty, drawn_kinds(self.mix.kinds), folder.seed, tried.counts)
        self.watch = None
        if config.canary is not None:
            self.watch = Watch(config.canary, config.tasks, self.group, folder, processes)
        self.kept: list[TokenSequence] = []
        if config.ptx is not None:
            longest = config.sequence_length + 1  # the last token is only predicted
            self.kept = [
                each for name in config.ptx.files for each in file_conversations(Path(name), self.chat, longest)
            ]
        self.pool = ShuffledPool(max(1, len(self.kept)), folder.seed)

    def begin(self, passes: Passes) -> None:
        if self.scorer is not None:
            return
        super().begin(passes)
        if self.measures_start:
            self.start = StartPolicy(self.policy, None if self.algorithm.replaces_reference else self.frozen)

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        sequences, metrics = self.update(step)
        if self.leaves_out:
            passed = without_silent(sequences, self.mean)
            metrics |= {"passed_share": len(passed) / len(sequences)}
            sequences = passed
        metrics |= ratio_check.count_metrics(sequences, self.mean)
        if self.options.ptx is not None:
            count = self.options.ptx.conversations
            sequences += [self.kept[self.pool[step * count + place]] for place in range(count)]
        sizes = self.config.sequence_length, self.config.micro_batch_tokens, world
        return deal(pack_groups([[each] for each in sequences], *sizes), rank, world), metrics

    def update(self, step: int) -> tuple[list[TokenSequence], dict[str, float]]:
        """The sequences of one update, and metrics."""
        number, update = divmod(step, self.options.updates_per_batch)
        first = step - update
        self.sampling_temperature, self.limit = self.options.temperature_at(first), self.options.limit_at(first)
        if self.options.temperature_end is not None:
            self.temperature = self.sampling_temperature  # the trainer's, for this step
        if self.held is None or self.held.number != number:
            self.before = self._known()
            self._replace_reference(step)
            if self.options.spurious is not None:
                self.coins = f"{self.folder.seed}/{step}"
            made = self.collect(step)
            groups = [
                [sequence for listed in made.sequences[start : start + self.group] for sequence in listed]
                for start in range(0, len(made.sequences), self.group)
            ]
            self.held = HeldBatch(number, step, groups, made.metrics, count_ages(made.episodes, step))
            self.before = None
        self.next_step = step + 1
        epoch, part = divmod(update, self.options.mini_batches)
        order = list(range(len(self.held.groups)))
        if epoch:
            random.Random(f"epoch/{self.folder.seed}/{number}/{epoch}").shuffle(order)
        prompts = self.options.prompts_per_step
        chosen = [self.held.groups[place] for place in order[part * prompts : (part + 1) * prompts]]
        metrics = self.held.metrics | staleness_metrics(self.held.ages, step - self.held.version, self.bound)
        return [sequence for group in chosen for sequence in group], metrics

    def draw(self, step: int) -> tuple[list[Episode], dict[str, float]]:
        wanted = self.options.prompts_per_step * self.options.mini_batches
        refill = self.options.refill
        useful, others, all_episodes = list[list[Episode]](), list[list[Episode]](), list[Episode]()
        for number in range(1 if refill is None else refill.rounds):
            missing = wanted - len(useful)
            count = wanted if refill is None or refill.ask == "batch" or number == 0 else missing
            tasks = self.tasks(step, number, count)
            episodes = self.sample([task for task in tasks for _ in range(self.group)], step, number)
            all_episodes += episodes
            for start in range(0, len(episodes), self.group):
                group = episodes[start : start + self.group]
                (useful if refill is None or self._differ(group) else others).append(group)
            if len(useful) >= wanted:
                break
        metrics = describe(all_episodes) | self.observe(step, all_episodes)
        metrics |= {"sampled_groups": float(len(useful) + len(others))}
        return [each for group in [*useful, *others][:wanted] for each in group], metrics

    def tasks(self, step: int, number: int, count: int) -> list[Task]:
        """`count` tasks for a round of a step's sampling; those passed over only if there are not enough others."""
        seed = step_seed(self.folder.seed, step)
        first = step // self.options.updates_per_batch * self.options.prompts_per_step * self.options.mini_batches
        found, passed = list[Task](), list[Task]()
        choosy = bool(self.solved) or self.difficulty is not None
        for attempt in range(TRIES if choosy else 1):
            if (
                number or attempt
            ):  # anywhere in the sequence of kinds: a single missing task is not always of the same kind
                further = random.Random(f"round/{step_seed(self.folder.seed, step)}/{number}/{attempt}")
                seed, first = further.randrange(1 << 48), further.randrange(KINDS_SEQUENCE)
            for place, task in enumerate(self.mix.generate(seed, count, "train", first)):
                new = not attempt or all(task.id != each.id for each in found)
                wanted = new and self.wants(task, f"{step}/{number}/{attempt}/{place}", step)
                (found if wanted else passed).append(task)
            if len(found) >= count:
                break
        return [*found, *passed][:count]

    def streams(self, episodes: Sequence[Episode]) -> tuple[dict[str, Rows], dict[str, float]]:
        streams, metrics = super().streams(episodes)
        return streams, metrics | ({} if self.coins is None else {"spurious": 1.0})

    def wants(self, task: Task, place: str, step: int) -> bool:
        """Whether the task at this place of the stream is asked at a step."""
        return task.id not in self.solved and (self.difficulty is None or self.difficulty.wants(task, place, step))

    def observe(self, step: int, episodes: Sequence[Episode]) -> dict[str, float]:
        """Learn from everything that was drawn, also from what is not trained on; called by all processes with the same."""
        self._note_solved(episodes)
        metrics: dict[str, float] = {}
        if self.difficulty is not None:
            starts = range(0, len(episodes), self.group)
            metrics |= self.difficulty.note(step, [episodes[start : start + self.group] for start in starts])
        if self.watch is not None:
            metrics |= self.watch.observe(step, episodes, self.rl.reward, self.sample_held_out)
        return metrics

    def measure(self, episodes: Sequence[Episode]) -> dict[str, float]:
        if self.start is None:
            return {}
        answers = measured(episodes)
        with self.start.scorer() as start:
            before = self.logprobs_by(start, answers)
        return {"start_divergence": divergence(answers, self.old_logprobs(answers), before)}

    def sample_held_out(self, tasks: Sequence[Task], kinds: Mapping[str, Environment], step: int) -> list[Episode]:
        """Answers of the policy as it is, which nothing is learnt from."""
        self.engine.update(None, version=step)  # in asynchronous runs it has not received the new weights
        before = self.sampled_tokens, self.retried_groups
        episodes = self.sample(tasks, step, HELD_OUT, kinds)
        self.sampled_tokens, self.retried_groups = before  # no part of the rate at which training is fed
        return episodes

    def _differ(self, group: Sequence[Episode]) -> bool:
        """Whether the answers to a task earn something different, before any penalty of length."""
        return len({self.rl.reward(each) for each in group if not each.failed}) > 1

    def _note_solved(self, episodes: Sequence[Episode]) -> None:
        if self.options.exclude_solved is None:
            return
        for start in range(0, len(episodes), self.group):
            group = episodes[start : start + self.group]
            if sum(each.score.correct for each in group) >= self.options.exclude_solved * len(group):
                self.solved.add(group[0].task.id)

    def _replace_reference(self, step: int) -> None:
        """Let the policy be the reference, if it is time."""
        every = self.rl.reference_every if isinstance(self.rl, PolicyOptimization) else None
        if self.reference is not None and every is not None and step // every > self.reference_step // every:
            self.reference.replace()
            self.reference_step = step

    def state(self) -> dict[str, Any]:
        """Names of what is saved beside the checkpoint, and what is known of tasks.

        A run that stops while a batch is collected collects that batch again, so nothing of it may be saved.
        """
        used = self.held if self.held is not None and self.next_step % self.options.updates_per_batch else None
        self.saved.write(used, self.reference if self.reference_step else None, self.reference_step)
        return {
            "batch": None if used is None else used.number,
            "reference_step": self.reference_step,
            **(self._known() if self.before is None else self.before),
        }

    def _known(self) -> dict[str, Any]:
        """What was learnt of tasks so far, as plain JSON."""
        return {
            "solved": sorted(self.solved),
            "difficulty": {} if self.difficulty is None else self.difficulty.state(),
            "canary": {} if self.watch is None else self.watch.canary.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.saved.forget()
        self.before = None
        number, self.reference_step = state.get("batch"), state.get("reference_step", 0)
        self.solved = set(state.get("solved", ()))
        if self.difficulty is not None:
            self.difficulty.restore(state.get("difficulty", {}))
        if self.watch is not None:
            self.watch.restore(state.get("canary", {}))
        self.held = None if number is None else self.saved.read_batch(number)
        if self.reference_step and self.reference is not None:
            self.saved.read_reference(self.reference, self.reference_step)
