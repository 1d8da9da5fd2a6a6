"""What a stage that samples tells of its samples: trajectories.jsonl, and averages for the metrics.

A row is an episode (`Episode.to_record`). `group` counts the tasks of its step, `group_size` the answers to each. A node of the
policy says why that turn `ended` (length: a limit cut it) and which `rewards` it earned by itself. By token:

    logprobs        log μ: by the sampler, when it drew the token
    old_logprobs    log π_old: by the policy when training on the step's samples begins, in the trainer's precision
    entropies       of π_old where the token was drawn, in nats
    versions        of the weights that drew the token; `step` minus it is its age
    advantages      what the algorithm stamped

Whole groups are kept, drawn from those that are trained on by (seed, step): which ones has nothing to do with what they earned.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ingot.envs.episode import UNREAD, Episode
from ingot.post.rewards.reward_shaping import truncated
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import write_text

FAILED = "failed_episodes/"  # begins the metrics that count failed episodes by what failed
RECORDED = 16  # answers kept of a recorded step, if an option does not say it


class Trajectories:
    """The file of some episodes of some steps."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        self.path, self.tokenizer = path, tokenizer
        self._begun = False  # whether this process has written a record yet

    def record(
        self,
        step: int,
        episodes: Sequence[Episode],
        advantages: Sequence[Sequence[float]],
        groups: Sequence[int],
        columns: Mapping[str, Sequence[Sequence[float]]],
    ) -> None:
        """Append a step's record: the episodes of the groups with these numbers, one group after the other.

        `advantages` and further `columns` have a row for each of the episodes.
        The first record of a process replaces those of steps that run again after a resume.
        """
        made = []
        size = len(episodes) // len(groups)
        for place, (episode, advantage) in enumerate(zip(episodes, advantages, strict=True)):
            rounded = {name: [float(f"{value:.6g}") for value in rows[place]] for name, rows in columns.items()}
            row = episode.to_record(step, self.tokenizer, advantage, rounded)
            made.append(json.dumps(row | {"group": groups[place // size], "group_size": size}, ensure_ascii=False))
        if not self._begun:
            write_text(self.path, "".join(f"{line}\n" for line in [*_lines_before(self.path, step), *made]))
        else:
            with self.path.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in made))
        self._begun = True


def choose_groups(seed: int, step: int, count: int, wanted: int) -> list[int]:
    """The numbers of the groups of a step that are recorded, `wanted` of `count`."""
    return sorted(random.Random(f"record/{seed}/{step}").sample(range(count), min(wanted, count)))


def _lines_before(path: Path, step: int) -> list[str]:
    """The lines of a record of the steps before this one; a torn last line of a killed process is left out."""
    kept = []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.split("\n"):
        with suppress(json.JSONDecodeError):
            if json.loads(line)["step"] < step:
                kept.append(line)
    return kept


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What the samples of a step looked like on average, without those whose environment failed; these are counted by cause.

    So are answers that the verifier could not judge, where there are any.
    """
    known = [each for each in episodes if not each.failed]
    if not known:
        raise CheckFailed(
            f"the environment failed in every episode of the step: {episodes[0].score.error}",
            place=episodes[0].task.kind,
            fix="try it with `ingot env test`",
        )
    count = len(known)
    failed = Counter(each.score.failed or "environment" for each in episodes if each.failed)
    lengths: dict[str, list[int]] = {}
    parts: dict[str, list[float]] = {}
    for each in known:
        for name, value in each.score.rewards.items():
            parts.setdefault(f"reward/{name}", []).append(value)
        lengths.setdefault("right" if each.score.correct else "wrong", []).append(each.sampled_count)
    return {
        "reward": sum(each.score.reward for each in known) / count,
        **{name: sum(values) / len(values) for name, values in sorted(parts.items())},
        "correct_share": sum(each.score.correct for each in known) / count,
        "format_share": sum(each.score.format_ok for each in known) / count,
        "response_length": sum(each.sampled_count for each in known) / count,
        **{f"response_length/{name}": sum(listed) / len(listed) for name, listed in sorted(lengths.items())},
        "truncated_share": sum(map(truncated, known)) / count,
        "failed_episodes": float(len(episodes) - count),
        **{f"{FAILED}{part}": float(total) for part, total in sorted(failed.items())},
        **{name: total for name in UNREAD if (total := sum(each.score.detail.get(name, 0.0) for each in known))},
    }


def failed_in_all(rows: Iterable[Mapping[str, Any]], updates_per_batch: int) -> dict[str, int]:
    """How many episodes failed in a whole stage by what failed; the updates on a batch have the same counts in their metrics."""
    total = Counter[str]()
    for row in rows:
        if row["step"] % updates_per_batch == 0:
            total.update({name.removeprefix(FAILED): int(row[name]) for name in row if name.startswith(FAILED)})
    return dict(total.most_common())
