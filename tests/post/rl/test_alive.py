"""A run that samples says that it is alive, so that the watchdog leaves it alone however long a batch takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.guards.heartbeat import Heartbeat
from ingot.train.guards.watchdog import Patience, expected_silence
from ingot.workspace.stage import StageFolder
from tests.post.making import checkpoint_of, tiny_model

SLOW = """
import asyncio
from ingot.envs.environment import Environment, reward

class Slow(Environment):
    "Its verifier takes its time."

    def draw(self, rng):
        return self.ask(f"{rng.randrange(10**9)}?", "1", thinking=False)

    @reward()
    async def late(self, episode):
        await asyncio.sleep(0.5)
        return 1.0
"""


def test_a_batch_that_is_sampled_beats(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several times a step, where each batch waits for its verifier; what it says it does is what may not be silent for long."""
    (tmp_path / "slow.py").write_text(SLOW)
    beats: list[tuple[str, int]] = []
    beat = Heartbeat.beat

    def recorded(self: Heartbeat, doing: Any, **numbers: float) -> None:
        beat(self, doing, **numbers)
        beats.append((doing, int(self.content.get("step", -1))))

    monkeypatch.setattr(Heartbeat, "beat", recorded)
    options: dict[str, Any] = {"steps": 2, "sequence_length": 64, "prompts_per_step": 1, "group": 2, "device": "cpu"}
    options |= {"tasks": {"weights": {f"{tmp_path}/slow.py:Slow": 1.0}}, "max_new_tokens": 2, "algorithm": "grpo"}
    config = RlConfig.model_validate(options | {"precision": "float32", "canary": None})
    rl.run(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "base")}, make_folder("rl"))
    counts = Counter(beats)
    assert all(counts["data", step] >= 4 for step in range(2)), counts
    sampling = {"doing": "data", "step": 1, "step_seconds": 1.0, "every": 10.0}
    assert expected_silence(sampling, Patience()) == 310.0, "a hang while it samples is found as soon as one of a step"
