"""The stage `prefer`: train on pairs of the model's own right and wrong answers.

Pairs are a pure function of the input checkpoint and the seed. Answers and the reference's log-probabilities are saved while they
are made (resumable.py), so an interrupted stage resumes with the pairs of an undisturbed one. In several processes the whole
model that sampled them is gone before the one that is trained is divided (processes.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.post.config import PreferConfig
from ingot.post.pairs import Pair, PairSource, pair_sequences, sample_pairs
from ingot.post.stage import PostStage
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import write_jsonl
from ingot.workspace.stage import StageFolder


class Prefer(PostStage[PreferConfig]):
    """Pairs that the input checkpoint gave."""

    count = 0

    def source(self) -> PairSource:
        config, folder = self.config, self.folder
        whole = self.processes.whole(self.model, self.inputs["checkpoint"])  # a copy is gone when this returns
        folder.progress.say(f"sampling {config.prompts * config.samples} answers to {config.prompts} tasks")
        pairs, right = sample_pairs(whole, config, folder.seed, self.processes, folder)
        folder.progress.say(f"{len(pairs)} pairs; {right:.0%} of the answers were right")
        if len(pairs) < config.batch_pairs:
            raise CheckFailed(
                f"only {len(pairs)} preference pairs, a step needs {config.batch_pairs} ({right:.0%} of the answers were right)",
                place=str(folder.path),
                fix="sample more prompts, or choose tasks that the model gets right sometimes and wrong sometimes",
            )
        self.count = len(pairs)
        self.processes.once(lambda: self._record(pairs))
        groups = pair_sequences(pairs, whole, config.sequence_length, self.processes, folder)
        return PairSource(groups, config.batch_pairs, config.sequence_length, config.micro_batch_tokens, folder.seed)

    def _record(self, pairs: Sequence[Pair]) -> None:
        """Write pairs.jsonl."""
        tokenizer = self.model.tokenizer
        assert tokenizer is not None  # the pairs were sampled with it
        rows = [
            {
                "task_id": pair.chosen.task.id,
                "prompt": pair.chosen.task.question,
                "chosen": pair.chosen.reply(tokenizer),
                "rejected": pair.rejected.reply(tokenizer),
            }
            for pair in pairs
        ]
        write_jsonl(self.folder.path / "pairs.jsonl", rows)

    def summary(self, last: dict[str, Any]) -> dict[str, Any]:
        return {
            "pairs": self.count,
            **{name: last[name] for name in ("loss", "preference_accuracy", "margin") if name in last},
        }


def run(config: PreferConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Sample pairs from the input checkpoint and train on them; makes a checkpoint."""
    return Prefer(config, inputs, folder).run()
