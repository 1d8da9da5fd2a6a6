"""Episodes as training sequences: one for each segment, with streams on the tokens that the policy sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.envs.episode import Episode
from ingot.post.algorithm import SampledAlgorithm
from ingot.tokens.batch import TokenSequence

Rows = list[list[float]]
"""A number for every token of every episode."""


def training_sequences(
    episodes: Sequence[Episode], streams: Mapping[str, Rows], group: int, algorithm: SampledAlgorithm
) -> list[list[TokenSequence]]:
    """The sequences of every episode, one for each segment, with all streams on sampled tokens and 0 elsewhere.

    Where the algorithm learns nothing from an episode (its environment failed, it was cut) all of them are 0.
    """
    counts = [each.sampled_count if algorithm.learns_from(each) else 0 for each in episodes]
    totals = [sum(counts[start : start + group]) for start in range(0, len(counts), group)]
    made: list[list[TokenSequence]] = []
    number = 0
    for place, (episode, count) in enumerate(zip(episodes, counts, strict=True)):
        rows = {name: episode.split(listed[place]) for name, listed in streams.items()}
        rows["sampled_logprob"] = [segment.logprobs() for segment in episode.segments]
        sequences = []
        for index, segment in enumerate(episode.segments):
            number += 1
            mask = [float(one) if count else 0.0 for one in segment.sampled()]
            constant = {"response_mask": 1.0, "sequence": float(number)}
            constant |= {"episode_tokens": float(count), "group_tokens": float(totals[place // group])}
            stamped = {name: [value * one for one in mask] for name, value in constant.items()}
            stamped |= {name: _masked(row[index], mask) for name, row in rows.items()}
            sequences.append(TokenSequence(segment.tokens(), stamped))
        made.append(sequences)
    return made


def _masked(row: Sequence[float], mask: Sequence[float]) -> list[float]:
    return [value * one for value, one in zip(row, mask, strict=True)]
