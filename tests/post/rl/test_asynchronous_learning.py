"""A tiny model learns arithmetic from an environment in a file outside of the package, by turns and asynchronously."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.episode import Episode
from ingot.post import sft
from ingot.post.algorithms.grpo import Grpo
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.sft_config import SftConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, checkpoint_of, tiny_model

MakeFolder = Callable[[str], StageFolder]
SHORT: dict[str, Any] = {"sequence_length": 64, "precision": "float32", "device": "cpu"}
ENVIRONMENT = """
from ingot.envs.environment import Environment
from ingot.tokens.chat import Message

class SmallSums(Environment):
    "a + b of numbers up to three."

    def draw(self, rng):
        a, b = rng.randint(0, 3), rng.randint(0, 3)
        return self.ask(f"{a} + {b}?", str(a + b), thinking=False, split="train")

    def solution(self, task):
        return [Message("assistant", task.answer)]
"""


class Even(Grpo):
    """An answer pays if its first token is even: half of them do at the beginning."""

    def reward(self, episode: Episode) -> float:
        return float(next(node.tokens[0] for node in episode.nodes if node.sampled) % 2 == 0)


@pytest.mark.usefixtures("spawning")
def test_an_asynchronous_policy_learns_a_bandit(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """Weights move far in every update: most advantages come from older policies."""
    earned: list[float] = []

    class Counted(Even):
        def reward(self, episode: Episode) -> float:
            earned.append(super().reward(episode))
            return earned[-1]

    options: dict[str, Any] = {"steps": 16, "tasks": SUMS, "prompts_per_step": 4, "group": 8, "max_new_tokens": 1}
    options |= {"algorithm": Counted(), "optimizer": {"lr": 1e-2, "weight_decay": 0.0}}
    config = RlConfig.model_validate(SHORT | options | {"asynchronous": {"staleness": 2}})
    folder = make_folder("rl")
    rl.run(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")}, folder)
    fifth = len(earned) // 5
    before, after = sum(earned[:fifth]) / fifth, sum(earned[-fifth:]) / fifth
    assert before < 0.7 and after > before + 0.2, (before, after)
    assert max(row["staleness_max"] for row in folder.metrics.read()) > 0


@pytest.mark.slow
def test_sums_are_learnt_both_ways(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """From under a half to nine of ten right answers. On an idle core each way takes half a minute."""
    (tmp_path / "small_sums.py").write_text(ENVIRONMENT, encoding="utf-8")
    tasks = {"weights": {f"{tmp_path / 'small_sums.py'}:SmallSums": 1.0}}
    schooled = make_folder("sft")
    given: dict[str, Any] = {"steps": 45, "tasks": tasks, "task_conversations": 200, "follow_ups": 0.0}
    taught = SftConfig.model_validate(SHORT | given | {"batch_conversations": 16, "optimizer": {"lr": 1e-2}})
    sft.run(taught, {"checkpoint": checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")}, schooled)
    for name, asynchronous in (("by turns", None), ("asynchronous", {"staleness": 2})):
        folder = make_folder(name)
        options: dict[str, Any] = {"steps": 160, "tasks": tasks, "prompts_per_step": 8, "group": 8, "max_new_tokens": 4}
        options |= {"optimizer": {"lr": 3e-3, "weight_decay": 0.0}}
        options |= {"schedule": {"kind": "cosine", "warmup": 0.0, "final": 0.1}}  # at one rate it oscillates around 0.9
        options |= {"algorithm": {"algorithm": "grpo", "divide_by_std": True}, "asynchronous": asynchronous}
        rl.run(RlConfig.model_validate(SHORT | options), {"checkpoint": schooled.path}, folder)
        rewards = [row["reward"] for row in folder.metrics.read()]
        assert sum(rewards[:10]) / 10 < 0.6, (name, rewards)
        assert sum(rewards[-20:]) / 20 >= 0.9, (name, rewards)
