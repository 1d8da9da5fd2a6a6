"""An asynchronous stage with real samplers: what was dropped before the run never comes, rates and the canary are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingot.envs.pass_rates import read_pass_rates
from ingot.post.rl import stage as rl
from ingot.post.rl.curriculum.offline_filter import PASS_RATES
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.post.rl.curriculum.test_offline_filter import config_of


def test_samplers_are_asked_for_what_is_wanted(
    schooled: StageFolder,
    tasks: dict[str, Any],
    make_folder: Callable[[str], StageFolder],
) -> None:
    folder, config = make_folder("rl"), config_of(tasks)
    assert config.difficulty is not None
    difficulty = config.difficulty.model_copy(update={"memory": 0.0}).model_dump() | {"curriculum": "learnable"}
    asked = config.model_dump() | {"difficulty": difficulty, "asynchronous": {"staleness": 2}, "steps": 6}
    asked |= {
        "canary": {
            "every": 2,
            "held_out": {"count": 4, "tasks": {"weights": {"no_think": 1}, "no_think": tasks["no_think"]}},
        }
    }
    asked |= {"algorithm": "grpo", "stop": ["."]}
    rl.run(type(config).model_validate(asked), {"checkpoint": schooled.path}, folder)
    rows = folder.metrics.read()
    assert len(rows) == 6 and [("canary" in row) for row in rows] == [True, False] * 3
    for row in rows:
        bands = [row[f"difficulty/{band}"] for band in ("new", "hard", "middle", "easy")]
        assert sum(bands) == pytest.approx(1) and bands[0] == 0, "every rate is known from before the run"
        assert 0 <= row["pass_rate/no_think"] <= 1 and 0 <= row["share/no_think"] <= 1
    rates = read_pass_rates(str(folder.path / PASS_RATES))
    trained = {row["task_id"] for row in read_jsonl(folder.path / "trajectories.jsonl") if row["kind"] == "sums"}
    assert trained and all(0.1 <= rates[name] <= 0.9 for name in trained)
    assert any(not 0.1 <= rate <= 0.9 for name, rate in rates.items() if name.startswith("sums"))
