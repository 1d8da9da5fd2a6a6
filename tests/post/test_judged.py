"""RL whose reward is a judge (recipes/rl/judged.py), played by a script that dies in between."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import TASKS
from ingot.envs.verifiers.errors import VerifierError
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.tokens.chat import Message
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.post.making import checkpoint_of, tiny_model

SPEC = f"{Path(__file__).parents[2] / 'recipes' / 'rl' / 'judged.py'}:Judged"
SHORT = 3  # characters that the rule lets through
DEAD = range(200, 260)  # requests during which the judge does not answer


class Script:
    """Likes answers with a small letter of the first half of the alphabet; does not answer for a while."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.numbers = itertools.count()  # episodes are judged in several threads
        self.failed = 0

    def ask(self, messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> str:
        prompt = "\n".join(message.content for message in messages)
        found = re.search(r"\[\[BEGIN ANSWER (\w{4})\w*\]\]\n\| (.*)\n", prompt)
        assert found is not None and schema is not None
        code, answer = found.groups()
        self.asked.append(answer)
        if next(self.numbers) in DEAD:
            self.failed += 1
            raise VerifierError("the judge's server gave no answer")
        likes = any("a" <= character <= "m" for character in answer)
        points = [int(likes), 4 * int(likes), 0]
        return json.dumps({f"point_{number}_{code}": value for number, value in enumerate(points, 1)})


def test_the_reward_of_a_judge_rises_though_it_dies_in_between(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on with what was judged, and no reward is made up for the rest; the rule keeps long answers from the judge."""
    script = Script()
    monkeypatch.setattr(sys.modules[TASKS.find(SPEC).__module__], "connect", lambda judge: script)
    tasks = TaskMixConfig.model_validate({"weights": {SPEC: 1}, SPEC: {"longest": SHORT}})
    config = RlConfig.model_validate(
        {
            **{"steps": 20, "sequence_length": 96, "tasks": tasks, "prompts_per_step": 4, "group": 8, "epochs": 2},
            **{"max_new_tokens": 1, "record_every": 1, "optimizer": {"lr": 3e-2, "weight_decay": 0}},
            **{"precision": "float32", "device": "cpu", "canary": None, "measure_start": False},
        }
    )
    folder = make_folder("rl")
    rl.run(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")}, folder)
    rows = folder.metrics.read()
    assert rows[-1]["reward"] > 0.8 > 0.3 > rows[0]["reward"]
    assert script.failed == len(DEAD) and all(len(answer) <= SHORT for answer in script.asked)
    lost = sum(row["failed_episodes"] for row in rows[::2])  # two updates on each batch
    again = sum(row.get("retried_groups", 0) for row in rows[::2])
    assert lost + again > 0, "what was not judged has no reward, or was sampled again"
    told = read_jsonl(folder.path / "trajectories.jsonl")
    assert {row["reward"] for row in told if row.get("error") is None} <= {0.0, 1.0}
