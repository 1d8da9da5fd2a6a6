"""Options of an `rl` stage that contradict each other: each alone is right, together one of them would do nothing, or harm.

A conflict says which option, what is wrong with it, and what to write instead. Options that contradict others of the same part
(bounds the wrong way round) are checked by that part.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.post.rl.checks.ratio_one import ratio_is_one
from ingot.post.rl.objective import GroupRelative, PolicyOptimization
from ingot.post.rl.options import RlOptions


def conflicts(config: RlOptions) -> Iterator[str]:
    """Every conflict in words."""
    yield from _of_lengths(config)
    yield from _of_groups(config)
    if config.sampling_precision == "float8" and config.asynchronous is not None and config.asynchronous.tensor > 1:
        yield "sampling_precision: float8 layers are not divided over devices: set asynchronous.tensor to 1, or use bfloat16"
    if config.asynchronous is not None and config.dynamic_sampling is not None:
        reason = "asynchronous samplers always ask for what is missing"
        yield from config.dynamic_sampling.unread("ask", because=reason, at="dynamic_sampling.")
    if config.ptx is not None and "tasks" not in config.model_fields_set:
        yield "tasks: ptx.files are conversations of one's own: say which tasks are learnt beside them"
    if isinstance(config.algorithm, PolicyOptimization):
        yield from _of_the_ratio(config, config.algorithm)
        yield from _of_the_reference(config.algorithm)
        if isinstance(config.algorithm, GroupRelative):
            yield from _of_the_deviation(config.algorithm)
        yield from _of_the_loss(config.algorithm, config.updates_per_batch)
        yield from _of_penalties(config, config.algorithm)


def _of_lengths(config: RlOptions) -> Iterator[str]:
    """A limit that its row does not leave room for is none; what is measured by it must have it."""
    row, own = config.sequence_length, config.algorithm
    used = isinstance(own, PolicyOptimization) and (own.overlong is not None or own.divides_by_limit)
    if config.max_new_tokens > row - used:
        yield (
            f"max_new_tokens: an answer of {config.max_new_tokens} tokens and its prompt do not fit into a row of {row}, which "
            "would be the limit instead: lower it, or raise sequence_length"
        )
    for first, limit in config.longer_from.items():
        if first < 0 or limit < 1:
            yield f"longer_from: {{{first}: {limit}}} is no step with a limit: steps count from 0, limits from 1"
        elif limit >= row:
            yield (
                f"longer_from: {limit} tokens and a prompt do not fit into a row of {row}, which would be the limit instead: "
                "lower it, or raise sequence_length"
            )


def _of_groups(config: RlOptions) -> Iterator[str]:
    least = config.algorithm.least_group
    if config.group < least:
        yield (
            f"group: {config.algorithm.algorithm} compares the answers to one task, of which it needs {least} at least: raise "
            "group, or use an algorithm that does not (ppo, reinforce_pp)"
        )
    elif config.group == 1 and config.refill is not None:
        yield "dynamic_sampling: one answer to a task never differs from the others: raise group, or leave it out"


def _of_the_ratio(config: RlOptions, algorithm: PolicyOptimization) -> Iterator[str]:
    if not ratio_is_one(config, algorithm):
        return
    options = algorithm.of_ratio
    if algorithm.importance is None and not algorithm.wants_reference:
        options = (*options, "log_ratio_limit")
    reason = "with one update on a batch the ratio is always 1 (give mini_batches or epochs)"
    yield from algorithm.unread(*options, because=reason, at="algorithm.")


def _of_the_deviation(algorithm: GroupRelative) -> Iterator[str]:
    if not algorithm.divide_by_std:
        yield from algorithm.unread("std", "std_epsilon", because="divide_by_std is false", at="algorithm.")


def _of_the_reference(algorithm: PolicyOptimization) -> Iterator[str]:
    if not algorithm.wants_reference:
        reason = "there is no reference (reference_weight: 0)"
        yield from algorithm.unread("reference_in", "reference_estimator", because=reason, at="algorithm.")
        if algorithm.reference_every is not None:
            yield "algorithm.reference_every: there is no reference to replace: give reference_weight"
        return
    estimator, in_reward = algorithm.reference_estimator, algorithm.reference_in == "reward"
    usual = type(algorithm).model_fields["reference_estimator"].default
    if in_reward and estimator not in ("k1", usual):
        yield (
            f"algorithm.reference_estimator: the divergence in the reward is always k1, {estimator} would not be used: leave it "
            "out, or set reference_in: loss"
        )
    if not in_reward and estimator == "k1":
        yield (
            "algorithm.reference_estimator: in the loss the expected gradient of k1 is 0: use k3_unbiased, k3 or k2, or set "
            "reference_in: reward"
        )


def _of_the_loss(algorithm: PolicyOptimization, updates: int) -> Iterator[str]:
    importance = algorithm.importance
    if algorithm.old_policy == "sampler" and importance is not None and importance.of == "old":
        yield (
            "algorithm.importance: with old_policy: sampler π_old is μ, and its weight over μ is always 1: leave importance out "
            "(the clipped ratio is over the sampler already), or set old_policy: trainer"
        )
    if algorithm.sequence_mask_of == "old" and algorithm.sequence_mask is None:
        yield "algorithm.sequence_mask_of: there is no mask: give sequence_mask"
    elif algorithm.sequence_mask_of == "old" and updates == 1:
        yield (
            "algorithm.sequence_mask_of: with one update on a batch π_old is π, and no answer has moved: set mini_batches or "
            "epochs, or measure from the sampler"
        )
    if algorithm.aggregation_length is not None and algorithm.aggregation != "constant":
        yield (
            f"algorithm.aggregation_length: aggregation: {algorithm.aggregation} has no constant length: set aggregation: "
            "constant, or leave it out"
        )


def _of_penalties(config: RlOptions, algorithm: PolicyOptimization) -> Iterator[str]:
    overlong, budget = algorithm.overlong, algorithm.token_budget
    shortest = min([config.max_new_tokens, *config.longer_from.values()])
    if overlong is not None and overlong.buffer is not None and overlong.buffer >= shortest:
        yield (
            f"algorithm.overlong.buffer: {overlong.buffer} tokens before a limit of {shortest} are the whole answer, so that "
            "each would be penalised: lower it, or leave it out for a fifth"
        )
    if algorithm.truncated_factor is not None and algorithm.mask_truncated:
        yield "algorithm.truncated_factor: mask_truncated leaves out what was cut: leave one of them out"
    if algorithm.length_reward is not None and config.group == 1:
        yield "algorithm.length_reward: it compares answers to one task: raise group, or leave it out"
    if budget is not None:
        if algorithm.mask_truncated:
            yield (
                "algorithm.token_budget: longer answers are cut, and mask_truncated leaves out what was cut, so that no penalty "
                "is learnt: leave one of them out"
            )
        kinds = sorted(config.tasks.kind(name).kind for name in config.tasks.weights)
        unknown = sorted(set(budget.tokens) - set(kinds))
        if unknown:
            yield (
                f"algorithm.token_budget.tokens: no task is of the kind {', '.join(unknown)}: the stage has {', '.join(kinds)}"
            )
