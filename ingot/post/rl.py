"""The stage `rl`: reinforcement learning with verifiable rewards, by default GRPO (algorithms/grpo.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.post.config import RlConfig
from ingot.post.sampling import SampledSource
from ingot.post.stage import PostStage
from ingot.workspace.stage import StageFolder


class Rl(PostStage[RlConfig]):
    """Samples of the policy, step by step."""

    def source(self) -> SampledSource:
        whole = self.processes.whole(self.model, self.inputs["checkpoint"])
        source = SampledSource(self.model, self.config, self.folder, self.processes, whole)
        self.after_step, self.temperature = source.check_ratio, self.config.temperature
        return source

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(("first_reward", "last_reward"), self.first_and_last("reward"), strict=True))


def run(config: RlConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Improve the input checkpoint on tasks with verifiable answers; makes a checkpoint."""
    return Rl(config, inputs, folder).run()
