"""Pairs among several answers of the model itself to each task.

    right_wrong   every right answer (reward 1) with the unused wrong one (reward 0) closest in length
    best_worst    the answers in order of reward: the best with the worst, the second with the last but one, …; those that
                  earned the same are no pair

Both answers are the policy's own samples, so a pair differs in what matters and not in style.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ingot.envs.episode import Episode
from ingot.model.transformer import Transformer
from ingot.post.data.pairs.answers import sample_answers
from ingot.post.data.pairs.pair import Pair, within
from ingot.post.prefer_config import PreferConfig
from ingot.post.processes import ALONE, Processes
from ingot.post.rewards.reward_model import Judge
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.files import write_jsonl
from ingot.workspace.stage import StageFolder

PAIRS_FILE = "pairs.jsonl"


@dataclass(frozen=True)
class OwnPairs:
    """The pairs; those that there would be without the cap on lengths; and what the answers earned on average."""

    pairs: list[Pair[Episode]]
    uncapped: list[Pair[Episode]]
    reward: float


def sample_pairs(
    model: Transformer,
    config: PreferConfig,
    seed: int,
    processes: Processes = ALONE,
    folder: StageFolder | None = None,
    judge: Judge | None = None,
) -> OwnPairs:
    """Pairs of the model's better and worse answers; a `judge` may change what they earn (reward_model.py).

    The model is whole. Each of several processes samples a part of the answers, and all get the same pairs. Answers that the
    stage has saved in its `folder` are not sampled again.
    """
    answers = sample_answers(model, config, seed, processes, folder)
    if judge is not None:
        sampled = answers
        answers = processes.share(len(sampled), lambda run, between: judge(sampled[run], between))
    return find_pairs(answers, config)


def find_pairs(answers: Sequence[Episode], config: PreferConfig) -> OwnPairs:
    """At most `pairs_per_task` pairs of each task, chosen as the options say."""
    of_task: dict[str, list[Episode]] = {}
    for each in answers:  # by task, not by place: where questions are few, a task is drawn several times
        of_task.setdefault(each.task.id, []).append(each)
    choose = match if config.pairs.choose == "right_wrong" else best_and_worst

    def found(length_gap: int | None) -> list[Pair[Episode]]:
        return [pair for group in of_task.values() for pair in choose(group, length_gap)[: config.pairs_per_task]]

    return OwnPairs(found(config.longest_gap), found(None), mean_reward(answers))


def mean_reward(answers: Sequence[Episode]) -> float:
    """What the answers earned on average, without those whose environment failed."""
    known = [each.score.reward for each in answers if not each.failed]
    return sum(known) / max(1, len(known))


def match(answers: Sequence[Episode], length_gap: int | None) -> list[Pair[Episode]]:
    """Each right answer with the unused wrong one closest in length, within the cap."""
    answers = [each for each in answers if not each.failed]
    wrong = [each for each in answers if each.score.reward == 0 and each.sampled_count > 0]
    pairs = []
    for chosen in (each for each in answers if each.score.reward == 1):
        near = sorted(wrong, key=lambda each: abs(each.sampled_count - chosen.sampled_count))
        if near and within([Pair(chosen, near[0])], length_gap):
            pairs.append(Pair(chosen, near[0]))
            wrong.remove(near[0])
    return pairs


def best_and_worst(answers: Sequence[Episode], length_gap: int | None) -> list[Pair[Episode]]:
    """The answers in order of reward, from both ends; ties are no pairs."""
    known = [each for each in answers if not each.failed and each.sampled_count > 0]
    known.sort(key=lambda each: -each.score.reward)
    ends = [Pair(known[place], known[-1 - place]) for place in range(len(known) // 2)]
    return within([pair for pair in ends if pair.chosen.score.reward > pair.rejected.score.reward], length_gap)


def write_pairs(folder: Path, pairs: Sequence[Pair[Episode]], tokenizer: Tokenizer) -> None:
    """Write pairs.jsonl."""
    rows = [
        {
            "task_id": pair.chosen.task.id,
            "prompt": pair.chosen.task.question,
            "chosen": pair.chosen.reply(tokenizer),
            "rejected": pair.rejected.reply(tokenizer),
            "rewards": [pair.chosen.score.reward, pair.rejected.score.reward],
        }
        for pair in pairs
    ]
    write_jsonl(folder / PAIRS_FILE, rows)
