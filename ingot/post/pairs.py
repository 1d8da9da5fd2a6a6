"""Preference pairs from the model's own answers: a right one against a wrong one to the same task.

Both answers are the policy's own samples, so a pair differs in what matters and not in style; answers whose lengths differ
by more than a cap are not paired, so that "longer" cannot be learnt as "better".
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import groupby

from ingot.envs.rollout import rollout
from ingot.envs.tasks.mix import TaskMix
from ingot.envs.trajectory import Trajectory
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.config import PreferConfig
from ingot.post.policy import chat_format, sequence_logprobs
from ingot.tokens.batch import Sequence


@dataclass(frozen=True)
class Pair:
    """Two answers to one task."""

    chosen: Trajectory
    rejected: Trajectory


def sample_pairs(model: Transformer, config: PreferConfig, seed: int, slots: int = 64) -> tuple[list[Pair], float]:
    """Pairs of the model's right and wrong answers, and the share of right ones among all samples."""
    mix = TaskMix(config.tasks)
    tasks = mix.generate(seed, config.prompts, "train")
    trajectories = rollout(
        [task for task in tasks for _ in range(config.samples)],
        Engine(model, slots=slots, length=config.sequence_length),
        chat_format(model),
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        max_tokens=config.sequence_length,
        seed=seed,
        score=mix.score,
    )
    pairs: list[Pair] = []
    for _, group in groupby(trajectories, key=lambda each: each.task.id):
        pairs += match(list(group), config.length_gap)[: config.pairs_per_task]
    return pairs, sum(each.score.reward for each in trajectories) / len(trajectories)


def match(answers: SequenceOf[Trajectory], length_gap: int) -> list[Pair]:
    """Each right answer with the unused wrong one closest in length, within the cap."""
    wrong = [each for each in answers if each.score.reward == 0]
    pairs = []
    for chosen in (each for each in answers if each.score.reward == 1):
        near = sorted(wrong, key=lambda each: abs(each.sampled_count - chosen.sampled_count))
        if near and abs(near[0].sampled_count - chosen.sampled_count) <= length_gap:
            pairs.append(Pair(chosen, near[0]))
            wrong.remove(near[0])
    return pairs


def pair_sequences(pairs: SequenceOf[Pair], reference: Transformer, capacity: int) -> list[list[Sequence]]:
    """For each pair its two sequences with the streams `chosen`, `rejected` (the pair's number plus one) and
    `reference_logprob` on the sampled tokens."""
    halves = [half for pair in pairs for half in (pair.chosen, pair.rejected)]
    logprobs = sequence_logprobs(reference, [Sequence(half.tokens()) for half in halves], capacity)
    sequences = []
    for index, (half, row) in enumerate(zip(halves, logprobs, strict=True)):
        number, is_rejected = divmod(index, 2)
        marks = [float((number + 1) * one) for one in half.sampled()]
        streams = {
            "rejected" if is_rejected else "chosen": marks,
            "chosen" if is_rejected else "rejected": [0.0] * len(row),
        }
        streams["reference_logprob"] = [value * one for value, one in zip(row, half.sampled(), strict=True)]
        sequences.append(Sequence(half.tokens(), streams))
    return [sequences[index : index + 2] for index in range(0, len(sequences), 2)]
