"""Episodes as training sequences: one for each segment, with streams on the tokens that the policy sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.envs.episode import Episode, Segment
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
        constant = {"response_mask": 1.0, "episode_tokens": float(count), "group_tokens": float(totals[place // group])}
        sequences = []
        for index, segment in enumerate(episode.segments):
            number += 1
            stamped = {
                name: _on_sampled(segment, [value] * segment.length if count else None)
                for name, value in {**constant, "sequence": float(number)}.items()
            }
            stamped |= {name: _on_sampled(segment, row[index] if count else None) for name, row in rows.items()}
            sequences.append(TokenSequence(segment.tokens(), stamped))
        made.append(sequences)
    return made


def _on_sampled(segment: Segment, row: Sequence[float] | None) -> list[float]:
    """The row on sampled tokens, 0 elsewhere; None: 0 everywhere."""
    made: list[float] = []
    for node in segment.nodes:
        start, size = len(made), len(node.tokens)
        made += row[start : start + size] if row is not None and node.sampled else [0.0] * size
    return made
