"""Every algorithm raises the reward of a tiny policy on a bandit over tokens, through the real stage, in a few steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot.checkpoints.checkpoint import load_model, open_model
from ingot.checkpoints.convert import export_model
from ingot.envs.episode import Episode
from ingot.optim.config import AdamWConfig
from ingot.post import rl
from ingot.post.algorithm import RL, RlAlgorithm
from ingot.post.sampling_config import RlConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, checkpoint_of, tiny_model
from tests.slow import first_fast

PAYING = 4  # one in so many arms pays


def bandit(kind: type[RlAlgorithm], options: dict[str, Any]) -> RlAlgorithm:
    """The algorithm, in a world where an answer is one token, and every fourth token pays."""

    class Bandit(kind):  # type: ignore[valid-type,misc]
        def reward(self, episode: Episode) -> float:
            first = next(node.tokens[0] for node in episode.nodes if node.sampled)
            return float(first % PAYING == 0)

    return Bandit(**options)


OPTIONS: dict[str, dict[str, Any]] = {
    "reinforce_pp": {"baseline": True},
    "rloo": {"reference_weight": 0.01},
    "gspo": {"clip_low": 0.2, "clip_high": 0.28},  # the ratio of one token is no mean: it moves far
}


FAST = (
    "grpo",
    "ppo",
    "rloo",
)  # plain, with a critic, with a reference: the others change a formula that has its own tests


@pytest.mark.parametrize("name", first_fast(sorted(RL.names(), key=lambda name: name not in FAST), len(FAST)))
def test_the_reward_rises(
    name: str, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """Two updates on each batch, so that ratios, clips and old values are at work."""
    algorithm = bandit(RL.find(name), OPTIONS.get(name, {}))
    config = RlConfig.model_validate(
        {
            **{"steps": 16, "sequence_length": 48, "tasks": SUMS, "prompts_per_step": 4, "group": 8, "epochs": 2},
            **{"max_new_tokens": 1, "record_every": 2, "algorithm": algorithm, "precision": "float32", "device": "cpu"},
            **{"optimizer": AdamWConfig(lr=2e-2, weight_decay=0.0), "dynamic_sampling": {"rounds": 1}},
        }
    )
    folder = make_folder(name)
    checkpoint = checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")
    earned: list[float] = []
    original = type(algorithm).reward

    def reward(self: RlAlgorithm, episode: Episode) -> float:
        earned.append(original(self, episode))
        return earned[-1]

    type(algorithm).reward = reward  # type: ignore[method-assign]
    rl.run(config, {"checkpoint": checkpoint}, folder)
    fifth = len(earned) // 5
    before, after = sum(earned[:fifth]) / fifth, sum(earned[-fifth:]) / fifth
    assert before < 0.45
    assert after > before + 0.25, (before, after)
    trained = open_model(folder.path)
    assert trained.config.heads == (("value",) if name == "ppo" else ())
    if name == "ppo":  # a critic stays behind when the policy is exported
        export_model(folder.path, tmp_path / "exported")
        assert not load_model(tmp_path / "exported").config.heads
    rows = folder.metrics.read()
    assert [row["staleness"] for row in rows] == [0.0, 1.0] * 8
    assert rows[0]["sampler_divergence"] < 1e-5 < max(row["sampler_divergence"] for row in rows)
