"""Checks the options of the stage `rl` together, and fills in what its algorithm decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pydantic import model_validator

from ingot.envs.rewards import check_rewards
from ingot.post.conflicts import conflicts
from ingot.post.rl.objective import ImportanceConfig, PolicyOptimization
from ingot.post.rl.options import RlOptions
from ingot.post.rl.sampling_config import DynamicSamplingConfig


class RlConfig(RlOptions):
    """Reinforcement learning with verifiable rewards."""

    @model_validator(mode="after")
    def _rewards_have_names_of_their_own(self) -> RlConfig:
        check_rewards(self.rewards, [self.tasks.kind(name) for name in self.tasks.weights])
        return self

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
        if found := list(conflicts(self)):
            raise ValueError("; ".join(found))
        return self

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """What a reward model gives has a weight where there is one."""
        if "reward_model" not in inputs:
            yield from self.unread("reward_model_weight", because="there is no reward_model in inputs")

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
