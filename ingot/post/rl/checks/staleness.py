"""How old samples are: for every sampled token, the learner's version minus the version of the weights that drew it.

staleness        the mean over the tokens of a batch, with the updates made on the batch so far
staleness_max    the largest
staleness/k      the share of tokens of age k, where sampling and training run at the same time
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from ingot.envs.episode import Episode

Ages = Mapping[int, int]
"""How many tokens have each age."""


def count_ages(episodes: Iterable[Episode], version: int) -> Ages:
    """The ages of all sampled tokens for a learner of this version."""
    return Counter(version - made for each in episodes for node in each.nodes for made in node.versions)


def staleness_metrics(ages: Ages, moved: int, bound: int | None = None) -> dict[str, float]:
    """The metrics after `moved` updates on the batch; with a `bound` on ages at the last of them also the share of each."""
    total = sum(ages.values())
    if not total:
        return {"staleness": float(moved), "staleness_max": float(moved)}
    found = {
        "staleness": moved + sum(age * count for age, count in ages.items()) / total,
        "staleness_max": float(moved + max(ages)),
    }
    shares = {} if bound is None else {f"staleness/{age}": ages.get(age - moved, 0) / total for age in range(bound + 1)}
    return found | shares


def present_tokens(episode: Episode, began: int, version: int) -> list[float]:
    """1 on tokens for which the sampler has computed all with the weights of `version`; aligned with `tokens()`.

    A token that the present weights drew after tokens of older ones has attended to keys and values of those: its probability
    is not exactly the learner's. So is one whose prompt was read before (`began`).
    """
    marks: list[float] = []
    for segment in episode.segments:
        present = began >= version
        for made in segment.versions():
            present = present and made in (version, -1)
            marks.append(float(present and made == version))
    return marks
