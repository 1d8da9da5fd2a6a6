"""The stage `rl`: reinforcement learning with verifiable rewards, by default GRPO (algorithms/grpo.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingot.checkpoints.checkpoint import open_model
from ingot.checkpoints.heads import with_head
from ingot.checkpoints.stored_model import StoredModel
from ingot.envs.mix import TaskMix
from ingot.envs.rewards import OwnRewards
from ingot.envs.tasks.prompts import OwnPrompts
from ingot.post.rewards.reward_model import chained, find_judge
from ingot.post.rl.checks.ratio_one import describe_ratio
from ingot.post.rl.checks.reward_fall import find_fall
from ingot.post.rl.checks.watch import Watch
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.offline_filter import NOTHING, AnswerSource, EngineAnswers, Tried, tried_tasks, try_tasks
from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.source import RlSource
from ingot.post.rl.trajectories import failed_in_all
from ingot.post.samplers.first_answers import SamplerAnswers
from ingot.post.samplers.listed import ListedTasks
from ingot.post.stage import PostStage
from ingot.tokens.add_tokens import with_template
from ingot.tokens.template_files import template_text
from ingot.train.device import choose_device, choose_sampling_precision, stored_dtype
from ingot.train.losses.terms import CrossEntropy, LossTerm, UntemperedCrossEntropy
from ingot.workspace.stage import WARNING, StageFolder

LOOKED_AT = 256  # tasks, which show in what modes of thinking a stage's are answered


class Rl(PostStage[RlConfig]):
    """Samples of the policy, batch by batch."""

    watch: Watch | None = None

    def change(self, stored: StoredModel) -> StoredModel:
        tokenizer = stored.tokenizer()
        if self.config.template is not None and tokenizer is not None:
            files = with_template(tokenizer, template_text(self.config.template)).to_files()
            stored = replace(stored, files=files)
        for head in self.config.algorithm.heads:
            stored = with_head(stored, head, self.folder.seed)
        return stored

    def source(self) -> RlSource:
        config, processes = self.config, self.processes
        if line := describe_ratio(config):
            self.folder.progress.say(line)
        self.check_lengths()
        judge = chained(
            OwnRewards(config.rewards) if config.rewards else None,
            find_judge(self.inputs, self.model, config, config.reward_model_weight),
        )
        if judge is None:
            self.warn_of_no_reward()
        if config.asynchronous is None:
            dtype = stored_dtype(choose_sampling_precision(config.sampling_precision, choose_device(config.device)))
            whole = processes.whole(self.model, self.inputs["checkpoint"], self.change, dtype)
            tried = self.try_tasks(lambda tasks: EngineAnswers(whole, config, tasks, processes))
            source = RlSource(self.model, config, self.folder, processes, whole, judge, tried)
        else:
            stored = self.change(open_model(self.inputs["checkpoint"]))
            tried = self.try_tasks(lambda tasks: SamplerAnswers(self.model, stored, config, tasks, processes))
            source = RlSource(self.model, config, self.folder, processes, None, judge, tried)
        self.after_step, self.temperature = source.check_ratio, self.config.temperature
        self.watch = source.watch
        return source

    def check_lengths(self) -> None:
        """Rewards of length are by mode of thinking: one without a task would do nothing."""
        own = self.config.algorithm
        if isinstance(own, PolicyOptimization) and own.length_reward is not None:
            tasks = TaskMix(self.config.tasks).generate(self.folder.seed, LOOKED_AT, "train")
            own.length_reward.check_modes({task.thinking for task in tasks})

    def warn_of_no_reward(self) -> None:
        """Prompts of one's own earn what their answers or functions say: without either an answer's text earns nothing."""
        kinds = TaskMix(self.config.tasks).kinds.values()
        own = [kind for kind in kinds if isinstance(kind, OwnPrompts) and not kind.rewards()]
        if any(not any(task.answer for task in kind.rows("train") or ()) for kind in own):
            self.folder.progress.say(
                "no prompt has an answer and there are no rewards: whatever is answered earns 0; give rows an `answer`, or "
                "rewards: [file.py:function]"
            )

    def try_tasks(self, answer: Callable[[ListedTasks], AnswerSource]) -> Tried:
        """What the start checkpoint solves, if the stage asks for that before it begins."""
        tasks = tried_tasks(self.config, self.folder.seed)
        if tasks is None:
            return NOTHING
        with closing(answer(tasks)) as answers:
            return try_tasks(answers, tasks, self.config, self.folder, self.processes)

    def terms(self) -> list[LossTerm]:
        terms = super().terms()
        if (
            self.config.ptx is not None
        ):  # kept conversations are learnt at temperature 1, whatever answers are sampled at
            plain = self.config.temperature == 1 and self.config.temperature_end in (None, 1)
            terms.append((CrossEntropy if plain else UntemperedCrossEntropy)("ptx", self.config.ptx.weight))
        return terms

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        told = {} if self.config.spurious is None else {"spurious": self.config.spurious}
        told |= {} if self.watch is None else self.watch.told()
        told |= self.tell_failures() | self.warn_of_a_fall()
        return told | dict(zip(("first_reward", "last_reward"), self.first_and_last("reward"), strict=True))

    def tell_failures(self) -> dict[str, Any]:
        """How many episodes failed, by what failed; said in a line."""
        rows = self.processes.once(self.folder.metrics.read)
        failed = failed_in_all(rows, self.config.updates_per_batch)
        if not failed:
            return {}
        parts = ", ".join(f"{part} {count:,}" for part, count in failed.items())
        self.folder.progress.say(f"{sum(failed.values()):,} episodes failed and taught nothing: {parts}")
        return {"failed_episodes": failed}

    def warn_of_a_fall(self) -> dict[str, Any]:
        """A run may end without an error and with a model that is worse than it was: its last line says so."""
        rows = self.processes.once(self.folder.metrics.read)
        fall = find_fall([row["step"] for row in rows], [row["reward"] for row in rows])
        if fall is None:
            return {}
        chosen = self.config.difficulty is not None or self.config.exclude_solved is not None
        return {
            WARNING: f"the reward fell from {fall.before:.3f} at step {fall.step:,} to {fall.after:.3f} at the end: the model "
            "has become worse at its own tasks"
            + (", or the tasks that are chosen by how often they are solved have become harder" if chosen else "")
            + ". Take a checkpoint from before (checkpoints.keep_every keeps them), or start again with a lower optimizer.lr or "
            "with algorithm.reference_weight above 0"
        }


def run(config: RlConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Improve the input checkpoint on tasks with verifiable answers; makes a checkpoint."""
    return Rl(config, inputs, folder).run()
