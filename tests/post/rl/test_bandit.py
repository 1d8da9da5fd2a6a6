"""Every algorithm raises the reward of a tiny policy on a bandit over tokens to its optimum, through the real stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model, open_model
from ingot.checkpoints.convert import export_model
from ingot.envs.episode import Episode
from ingot.optim.config import AdamWConfig
from ingot.post.algorithm import RL, RlAlgorithm
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.post.making import SUMS, checkpoint_of, tiny_model
from tests.slow import first_fast

PAYING = 4  # one in so many arms pays
STEPS = 28


def bandit(kind: type[RlAlgorithm], options: dict[str, Any]) -> RlAlgorithm:
    """The algorithm, in a world where an answer is one token, and every fourth token pays."""

    class Bandit(kind):  # type: ignore[valid-type,misc]
        def reward(self, episode: Episode) -> float:
            first = next(node.tokens[0] for node in episode.nodes if node.sampled)
            return float(first % PAYING == 0)

    return Bandit(**options)


ONE = {"group": 1, "prompts_per_step": 32, "dynamic_sampling": None}  # an answer to each task
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # the others change a formula that has its own tests
    "grpo": ("grpo", {}, {}),
    "rloo": ("rloo", {}, {}),  # with a reference
    "ppo, one answer": ("ppo", {}, ONE),  # with a critic
    "reinforce_pp, one answer": ("reinforce_pp", {}, ONE),
    "reinforce_pp, baseline": ("reinforce_pp", {"baseline": True}, {}),
    **{name: (name, {}, {}) for name in RL.names() if name not in ("grpo", "rloo")},
}


@pytest.mark.parametrize("case", first_fast(list(CASES)))
def test_the_reward_rises_to_the_optimum(
    case: str, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """From a quarter, the share of arms that pay, to nearly 1. Each algorithm has its own settings; two updates on each batch, so
    that ratios, clips and old values are at work."""
    name, options, stage = CASES[case]
    algorithm = bandit(RL.find(name), options)
    config = RlConfig.model_validate(
        {
            **{"steps": STEPS, "sequence_length": 48, "tasks": SUMS, "prompts_per_step": 4, "group": 8, "epochs": 2},
            **{"max_new_tokens": 1, "record_every": 2, "algorithm": algorithm, "precision": "float32", "device": "cpu"},
            **{"optimizer": AdamWConfig(lr=2e-2, weight_decay=0.0), "dynamic_sampling": {"rounds": 1}},
        }
        | stage
    )
    folder = make_folder("rl")
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
    assert after > 0.9, (before, after)
    trained = open_model(folder.path)
    assert trained.config.heads == (("value",) if name == "ppo" else ())
    if name == "ppo":  # a critic stays behind when the policy is exported
        export_model(folder.path, tmp_path / "exported")
        assert not load_model(tmp_path / "exported").config.heads
    rows = folder.metrics.read()
    assert [row["staleness"] for row in rows] == [0.0, 1.0] * (STEPS // 2)
    assert rows[0]["sampler_divergence"] < 1e-5 < max(row["sampler_divergence"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [("cispo", "dapo"), ("sapo", "gspo")])
def test_methods_that_act_through_the_ratio_differ_by_default(
    one: str, other: str, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """With one update on a batch they are the same to the bit, as the start line says; by default they make four."""
    checkpoint = checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")
    usual = {"steps": 5, "sequence_length": 48, "tasks": SUMS, "prompts_per_step": 4, "group": 8, "max_new_tokens": 4}
    usual |= {"optimizer": AdamWConfig(lr=2e-2), "precision": "float32", "device": "cpu", "dynamic_sampling": None}

    def weights(name: str, **more: Any) -> dict[str, torch.Tensor]:
        options = {"overlong": None} if name == "dapo" else {}
        config = RlConfig.model_validate({**usual, **more, "algorithm": bandit(RL.find(name), options)})
        folder = make_folder(f"{name}-{len(more)}")
        rl.run(config, {"checkpoint": checkpoint}, folder)
        return load_model(folder.path).state_dict()

    def equal(**more: Any) -> bool:
        first, second = weights(one, **more), weights(other, **more)
        return all(torch.equal(first[key], second[key]) for key in first)

    assert equal(mini_batches=1) and not equal()
