"""A reward model in several processes ends as in one, however the model is divided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ingot.checkpoints.checkpoint import load_model
from ingot.post import reward
from ingot.post.reward_config import RewardConfig
from ingot.tokens.tokenizer import Tokenizer
from tests.making.stages import stage_folder
from tests.post.making import checkpoint_of, tiny_model
from tests.post.test_reward import write_rows
from tests.train.parallel.ranks import run_ranks

Mesh = dict[str, int]
MESHES: tuple[Mesh, ...] = ({"shard": 2}, {"tensor": 2}, {"pipeline": 2})


def run_meshes(meshes: Sequence[Mesh], base: Path, file: str, below: Path) -> list[dict[str, Any]]:
    parts = {"steps": 3, "sequence_length": 64, "micro_batch_tokens": 100, "batch_answers": 5, "held_out": 5}
    more = {"optimizer": {"lr": 2e-3, "epsilon": 1e-4}, "precision": "float32", "device": "cpu", "files": (file,)}
    made = []
    for mesh in meshes:
        folder = stage_folder(below / "-".join(mesh or ["alone"]))
        config = RewardConfig.model_validate(parts | more | {"mesh": mesh})
        made.append(reward.run(config, {"checkpoint": base}, folder))
    return made


@pytest.mark.slow
def test_two_processes_end_as_one(tokenizer: Tokenizer, tmp_path: Path) -> None:
    base, file = checkpoint_of(tiny_model(tokenizer), tmp_path / "base"), write_rows(tmp_path / "pairs.jsonl", 20)
    (alone,) = run_meshes([{}], base, file, tmp_path)
    expected = load_model(tmp_path / "alone").state_dict()
    found = run_ranks(2, run_meshes, tmp_path / "store", MESHES, base, file, tmp_path)
    assert found[0] == found[1]
    for mesh, summary in zip(MESHES, found[0], strict=True):
        assert summary == pytest.approx(alone, rel=1e-4, abs=1e-5)
        weights = load_model(tmp_path / "-".join(mesh)).state_dict()
        for name, value in expected.items():
            assert float((weights[name] - value).norm()) <= 1e-5 * float(value.norm()), (mesh, name)
