"""The last line of RL that made its model worse says so, in numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from ingot.post.rl.checks.reward_fall import Fall, find_fall
from ingot.post.rl.config import RlConfig
from ingot.post.rl.stage import Rl
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.post.making import checkpoint_of, tiny_model


def noisy(means: list[float], seed: int) -> list[float]:
    """What 32 answers a step earn."""
    rng = random.Random(seed)
    return [sum(rng.random() < mean for _ in range(32)) / 32 for mean in means]


def test_a_fall_is_found_and_noise_is_not() -> None:
    collapsed = [1.0] * 4 + [0.0] * 36
    assert find_fall(range(40), collapsed) == Fall(1.0, 3, 0.0)
    assert find_fall(range(0, 400, 10), collapsed) == Fall(1.0, 30, 0.0)  # of every tenth step there is a line
    rises, level = [at / 60 for at in range(60)], [0.5] * 60
    falls = [0.2 + at / 60 for at in range(30)] + [0.6 - at / 60 for at in range(30)]
    found = {"rises": 0, "level": 0, "falls": 0}
    for seed in range(100):
        for name, means in (("rises", rises), ("level", level), ("falls", falls)):
            found[name] += find_fall(range(60), noisy(means, seed)) is not None
    assert found["rises"] == 0 and found["level"] <= 1 and found["falls"] >= 95
    for few in ([], [0.5], [0.5, 0.5]):
        assert find_fall(range(len(few)), few) is None


def test_the_summary_says_it(tokenizer: Tokenizer, tmp_path: Path, make_folder: Callable[[str], StageFolder]) -> None:
    folder = make_folder("rl")
    for step in range(40):
        folder.metrics.append(step, {"reward": float(step < 4)})
    config = RlConfig.model_validate({"steps": 40, "sequence_length": 64, "max_new_tokens": 8, "device": "cpu"})
    stage = Rl(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "base")}, folder)
    summary = stage.summary({})
    assert summary["warning"].startswith("the reward fell from 1.000 at step 3 to 0.000 at the end: ")
    assert "checkpoints.keep_every" in summary["warning"] and "optimizer.lr" in summary["warning"]
