"""A reward model in use: what it gives for finished answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.envs.episode import Episode
from ingot.model.transformer import REWARD_HEAD, Transformer
from ingot.post.barrier import Between
from ingot.post.distill.vocabularies import check_vocabularies
from ingot.post.policy import ROWS
from ingot.post.rewards.reward_rows import marked
from ingot.tokens.packing import make_batch
from ingot.train.batches import split_rows
from ingot.train.config import TrainingConfig
from ingot.train.device import choose_device, choose_frozen_precision
from ingot.train.losses.score import score
from ingot.train.losses.terms import Wants
from ingot.workspace.errors import ArtifactError

REWARD_MODEL = "reward_model"
"""The name of its part of an episode's reward."""


class RewardModel:
    """A frozen model with a reward head."""

    def __init__(self, model: Transformer, place: str = "") -> None:
        if REWARD_HEAD not in model.config.heads:
            raise ArtifactError(
                "the model has no reward head",
                place=place or None,
                fix="give the result of a `reward` stage, or a Hugging Face sequence classifier with one label",
            )
        self.model = model.eval().requires_grad_(requires_grad=False)

    @classmethod
    def load(cls, path: Path, device: torch.device, precision: str = "auto") -> RewardModel:
        """The reward model at `path`, for a stage of this `precision`."""
        return cls(load_model(path, device=device, dtype=choose_frozen_precision(precision, device)), str(path))

    @torch.no_grad()
    def scores(self, texts: Sequence[Sequence[int]], between: Between = lambda: None) -> list[float]:
        """The reward at the last token of each text; calls `between` before each pass."""
        if not texts:
            return []
        numbered = [marked(text, {"place": place}) for place, text in enumerate(texts, 1)]
        found = torch.zeros(len(texts) + 1)
        for batch in split_rows(make_batch(numbered, max(len(text) for text in texts)), ROWS):
            between()
            scored = score(self.model, batch.to(self.model.embedding.weight.device), wants=Wants(heads=(REWARD_HEAD,)))
            found[scored.streams["place"].long().cpu()] = scored.heads[REWARD_HEAD].float().cpu()
        return found[1:].tolist()

    def judge(self, episodes: Sequence[Episode], between: Between, weight: float) -> list[Episode]:
        """The episodes with `weight` times the model's reward added to theirs; one whose environment failed has none."""
        known = [each for each in episodes if not each.failed and each.sampled_count]
        earned = dict(zip(map(id, known), self.scores([_written(each) for each in known], between), strict=True))
        return [_with_reward(each, earned[id(each)], weight) if id(each) in earned else each for each in episodes]


Judge = Callable[[list[Episode], Between], list[Episode]]
"""Changes what episodes earn; calls its second argument now and then, because a large model takes long."""


def find_judge(inputs: Mapping[str, Path], policy: Transformer, config: TrainingConfig, weight: float) -> Judge | None:
    """What adds the numbers of a stage's input `reward_model` to the rewards of its episodes; None if it has none."""
    if REWARD_MODEL not in inputs:
        return None
    model = RewardModel.load(inputs[REWARD_MODEL], choose_device(config.device), config.precision)
    check_vocabularies(policy, model.model, str(inputs[REWARD_MODEL]))
    return partial(model.judge, weight=weight)


def chained(*judges: Judge | None) -> Judge | None:
    """All of these, each on what the one before leaves; None if there is none."""
    asked = [each for each in judges if each is not None]

    def judge(episodes: list[Episode], between: Between) -> list[Episode]:
        for each in asked:
            episodes = each(episodes, between)
        return episodes

    return judge if asked else None


def _written(episode: Episode) -> list[int]:
    """The last context of an episode, up to what the policy wrote last."""
    segment = episode.segments[-1]
    marks = segment.sampled()
    return segment.tokens()[: max(place for place, one in enumerate(marks, 1) if one)]


def _with_reward(episode: Episode, earned: float, weight: float) -> Episode:
    told = episode.score
    added = replace(told, reward=told.reward + weight * earned, rewards={**told.rewards, REWARD_MODEL: earned})
    return replace(episode, score=added)
