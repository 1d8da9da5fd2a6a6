"""Describes a model for `ingot model show`: a line for each kind of layer, and the order of the layers as symbols."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ingot.model.config import BlockConfig, ModelConfig

SIGNS = "■◆●▲□◇○△"
RESIDUALS = {
    "pre": "norm before each part",
    "post": "norm after each part",
    "sandwich": "norms before and after each part",
    "norm_residual": "the residual is the normed value",
}
LONGEST_GROUP = 16


def describe_block(block: BlockConfig) -> str:
    """One line: mixer, then feed-forward."""
    return "; ".join(part.describe() for part in (block.mixer, block.feed_forward) if part is not None)


def signs(config: ModelConfig) -> dict[str, str]:
    """A symbol for every kind of layer, in the order of first use."""
    used = dict.fromkeys(config.layer_names)
    return {name: SIGNS[number % len(SIGNS)] for number, name in enumerate(used)}


def layer_groups(names: Sequence[str]) -> list[Sequence[str]]:
    """The layers before a repeated pattern, each repeat, and the layers after it; without a pattern, groups of eight."""
    best = (0, 0, 0, 0)  # layers covered, −size of the group (the smallest is best), start, count
    for start in range(min(len(names), LONGEST_GROUP)):
        for size in range(2, min(LONGEST_GROUP, (len(names) - start) // 2) + 1):
            group, repeats = names[start : start + size], 1
            while names[start + repeats * size : start + (repeats + 1) * size] == group:
                repeats += 1
            rare_last = group[0] != group[-1] and group.count(group[-1]) <= group.count(group[0])
            if repeats > 1 and rare_last:
                best = max(best, (repeats * size, -size, -start, repeats))
    covered, size, start, repeats = best[0], -best[1], -best[2], best[3]
    if 2 * covered < len(names):
        return [names[first : first + 8] for first in range(0, len(names), 8)]
    cuts = [0, *(start + number * size for number in range(repeats + 1)), len(names)]
    return [names[first:last] for first, last in pairwise(cuts) if first < last]
