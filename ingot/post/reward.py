"""The stage `reward`: make a checkpoint into a reward model, from pairs of answers or from answers with scores.

The language model gets one more linear row (model config: `heads`), which is read at the last token of an answer, and all of it
is trained (algorithms/bradley_terry.py, regression.py). The result is no checkpoint to go on from, so it has a name of its own,
`reward_model`: an `rl` stage adds what it gives to the rewards of tasks, and `ingot export` writes it as a sequence classifier.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.checkpoints.heads import with_head
from ingot.checkpoints.stored_model import StoredModel
from ingot.model.transformer import REWARD_HEAD
from ingot.post.data.conversations.sequences import PoolSource
from ingot.post.data.pairs.pair import PairSource
from ingot.post.policy import chat_format
from ingot.post.reward_config import RewardConfig
from ingot.post.rewards.reward_model import REWARD_MODEL, RewardModel
from ingot.post.rewards.reward_rows import RewardRow, read_reward_rows
from ingot.post.stage import PostStage
from ingot.train.device import choose_device
from ingot.workspace.errors import CheckFailed
from ingot.workspace.stage import StageFolder


class Reward(PostStage[RewardConfig]):
    """Answers from files, in a new order in every pass."""

    count = 0

    def change(self, stored: StoredModel) -> StoredModel:
        return with_head(stored, REWARD_HEAD, self.folder.seed)

    def source(self) -> PoolSource:
        config, paired = self.config, self.config.algorithm.paired
        longest = config.sequence_length  # one more token follows, which is never read
        rows, left_out = read_reward_rows(
            config.files, chat_format(self.model), longest, config.too_long, paired=paired
        )
        if left_out:
            self.folder.progress.say(f"{left_out} rows are left out: they have more than {longest} tokens")
        learnt = rows[: len(rows) - config.held_out]
        self.held_out = rows[len(learnt) :]
        if len(learnt) < config.batch_answers:
            raise CheckFailed(
                f"only {len(learnt)} rows to learn from, a step needs {config.batch_answers}",
                place=", ".join(config.files),
                fix="give more rows, or lower batch_answers or held_out",
            )
        self.count = len(learnt)
        sizes = config.batch_answers, config.sequence_length, config.micro_batch_tokens, self.folder.seed
        return (PairSource if paired else PoolSource)([row.sequences() for row in learnt], *sizes)

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        names = ("loss", "reward_accuracy", "reward_margin", "absolute_error")
        return {"rows": self.count, **{name: last[name] for name in names if name in last}}

    def run(self) -> dict[str, Any]:
        summary = super().run()
        self.processes.once(lambda: name_result(self.folder))
        if self.held_out:
            summary |= self.processes.once(lambda: self._measure(self.held_out))
        return summary

    def _measure(self, rows: Sequence[RewardRow]) -> dict[str, float]:
        """How good the finished model is on rows that it did not learn from."""
        path = self.folder.artifact(REWARD_MODEL)
        given = iter(
            RewardModel.load(path, choose_device(self.config.device), self.config.precision).scores(
                [text for row in rows for text in row.answers]
            )
        )
        found = [[next(given) for _ in row.answers] for row in rows]
        if self.config.algorithm.paired:
            return {"held_out_accuracy": sum(chosen > rejected for chosen, rejected in found) / len(rows)}
        errors = [abs(one - row.value) for (one,), row in zip(found, rows, strict=True)]
        return {"held_out_absolute_error": sum(errors) / len(rows)}


def name_result(folder: StageFolder) -> None:
    """Give the finished checkpoint its name, which keeps later stages from training it by mistake."""
    made, named = folder.artifact("checkpoint"), folder.artifact(REWARD_MODEL)
    if made.exists():
        shutil.rmtree(named, ignore_errors=True)
        made.rename(named)


def run(config: RewardConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Train a reward model that begins as the input checkpoint; makes a reward model."""
    return Reward(config, inputs, folder).run()
