"""Reinforcement learning with verifiable rewards: GRPO (arXiv 2402.03300), as later work runs it.

For each task G answers are sampled and scored by its verifier; the advantage of answer i is

    A_i = R_i − mean(R)          (optionally / (std(R) + 1e-4), std with n − 1)

the same for all of its tokens. The loss is the clipped policy gradient, summed over the step's sampled tokens and divided by
their number (DAPO, arXiv 2503.14476), plus an optional divergence from the input checkpoint. Not dividing by the standard
deviation keeps easy and hard tasks in proportion (Dr. GRPO, arXiv 2503.20783).
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

from ingot.envs.trajectory import Trajectory
from ingot.model.transformer import Transformer
from ingot.post.config import RlConfig
from ingot.post.policy import sequence_logprobs
from ingot.post.processes import ALONE, Processes, begin
from ingot.post.sampling import SampledSource
from ingot.tokens.batch import Sequence
from ingot.tokens.tokenizer import THINK_START, Tokenizer
from ingot.train.loop import Trainer
from ingot.train.terms import PolicyGradient, ReferenceDivergence
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder

STD_EPSILON = 1e-4


def group_advantages(rewards: SequenceOf[float], group: int, divide_by_std: bool) -> list[float]:
    """The advantage of every reward within its group; `rewards` lists the groups one after another."""
    advantages = []
    for start in range(0, len(rewards), group):
        members = rewards[start : start + group]
        # exactly 0 where all are equal: what rounding leaves of 0.1 − 0.1 is as good as a real advantage to Muon
        mean = statistics.mean(members)
        scale = statistics.stdev(members) + STD_EPSILON if divide_by_std else 1.0
        advantages += [(reward - mean) / scale for reward in members]
    return advantages


class GroupRelative(SampledSource):
    """GRPO's stamp: a trajectory's advantage on each of its tokens."""

    def __init__(
        self,
        model: Transformer,
        config: RlConfig,
        folder: StageFolder,
        processes: Processes = ALONE,
        whole: Transformer | None = None,
    ) -> None:
        super().__init__(model, config, config.group, folder, processes, whole)
        self.rl = config
        self.reference = copy.deepcopy(self.whole) if config.reference_weight > 0 else None

    def reward(self, trajectory: Trajectory) -> float:
        """The verifier's reward, or a smaller one for an answer that is only well formed."""
        return max(trajectory.score.reward, self.rl.format_reward * trajectory.score.format_ok)

    def advantages(self, trajectories: SequenceOf[Trajectory]) -> tuple[list[list[float]], dict[str, float]]:
        _check_reachable(trajectories, self.chat.tokenizer)
        rewards = [self.reward(trajectory) for trajectory in trajectories]
        stamped = group_advantages(rewards, self.group, self.rl.divide_by_std)
        starts = range(0, len(rewards), self.group)
        spread = [statistics.pstdev(rewards[start : start + self.group]) for start in starts]
        metrics = {
            "reward_std": sum(spread) / len(spread),
            "mixed_groups": sum(value > 0 for value in spread) / len(spread),
        }
        return [[value] * each.length for value, each in zip(stamped, trajectories, strict=True)], metrics

    def more_streams(self, sequences: SequenceOf[Sequence]) -> dict[str, list[list[float]]]:
        if self.reference is None:
            return {}
        options = self.config.sequence_length, self.config.temperature, self.processes
        rows = sequence_logprobs(self.reference, sequences, *options)
        acting = [sequence.streams["acting"] for sequence in sequences]  # the prompt need not pass through the head
        pairs = zip(rows, acting, strict=True)
        return {"reference_logprob": [[a * b for a, b in zip(row, mask, strict=True)] for row, mask in pairs]}


def _check_reachable(trajectories: SequenceOf[Trajectory], tokenizer: Tokenizer) -> None:
    """Fail if a task asks for a trace of a model that has no token for one: no answer could ever earn anything."""
    asking = next((each.task for each in trajectories if each.task.thinking), None)
    if asking is not None and THINK_START not in tokenizer.special:
        raise CheckFailed(
            f"the task asks for thinking, but the model has no token {THINK_START}: every answer would earn 0",
            place=asking.id,
            fix="choose tasks without it (no_think, or calculator with thinking: false), or a model that has the token",
        )


def run(config: RlConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Improve the input checkpoint on tasks with verifiable answers; makes a checkpoint."""
    layout, model, fill = begin(config, inputs["checkpoint"])
    processes = Processes(layout, folder.stop)
    source = GroupRelative(model, config, folder, processes, processes.whole(model, inputs["checkpoint"]))
    terms = [PolicyGradient(config.clip_low, config.clip_high), ReferenceDivergence(config.reference_weight)]
    trainer = Trainer(
        model,
        terms,
        source,
        config,
        folder,
        after_step=source.check_ratio,
        temperature=config.temperature,
        fill=fill,
        layout=layout,
    )
    trainer.run()
    rewards = [row["reward"] for row in processes.once(folder.metrics.read)]
    part = max(1, len(rewards) // 5)
    return {"first_reward": sum(rewards[:part]) / part, "last_reward": sum(rewards[-part:]) / part}
