"""When the ratio π/π_old of an `rl` stage can differ from 1, and which options of its algorithm act through it alone."""

from __future__ import annotations

from ingot.post.rl.objective import PolicyOptimization
from ingot.post.rl.options import RlOptions


def ratio_is_one(config: RlOptions, algorithm: PolicyOptimization) -> bool:
    """Whether π_old is always the policy itself: with one update on a batch, unless the sampler stands for it."""
    return config.updates_per_batch == 1 and algorithm.old_policy == "trainer"


def describe_ratio(config: RlOptions) -> str | None:
    """For the screen at the start of a stage; nothing for an algorithm without such options."""
    algorithm = config.algorithm
    if not isinstance(algorithm, PolicyOptimization) or not algorithm.of_ratio:
        return None
    options = ", ".join(algorithm.of_ratio)
    if ratio_is_one(config, algorithm):
        return (
            f"{algorithm.algorithm}: one update on a batch of samples, so the ratio is always 1, and {options} never act; they "
            "do with mini_batches or epochs above 1"
        )
    if algorithm.old_policy == "sampler":
        return (
            f"{algorithm.algorithm}: the ratio is over the sampler, so {options} act where trainer and sampler differ"
        )
    return (
        f"{algorithm.algorithm}: {config.updates_per_batch} updates on a batch of samples; from the second on the ratio moves, "
        f"and {options} act"
    )
