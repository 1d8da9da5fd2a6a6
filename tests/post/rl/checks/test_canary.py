"""The canary of RL: its statistics against scipy, alarms by hand, and runs whose reward can be hacked, or cannot."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode, Score
from ingot.envs.second_opinion import second_opinions
from ingot.post.processes import ALONE
from ingot.post.rl import stage as rl
from ingot.post.rl.checks.canary import CERTAIN, Canary, CanaryConfig, clustered, trend
from ingot.post.rl.checks.watch import ALARM, Watch
from ingot.post.rl.config import RlConfig
from ingot.tokens.chat import Message
from ingot.train.saving.early_end import ended_at
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener, stage_folder
from tests.post.making import SUMS, episode

ENVIRONMENTS = """
from dataclasses import replace

from ingot.envs.environment import reward
from ingot.envs.episode import Score
from ingot.envs.tasks.no_think import NoThink
from ingot.envs.verifiers.text.reply import final_content, same_number


class Keyword(NoThink):
    "Pays for a 7 in the answer, whatever was asked; it knows whether the answer is right."

    @reward()
    def seven(self, episode):
        return float("7" in episode.answer)

    @reward(weight=0.0)
    def correct(self, episode):
        return float(same_number(episode.answer, episode.task.answer))


class Blind(Keyword):
    "The same, and takes its own reward for the truth."

    @reward(weight=0.0)
    def correct(self, episode):
        return float("7" in episode.answer)


class Strict(NoThink):
    "A second verifier."

    def score(self, task, messages):
        right = same_number(final_content(messages), task.answer)
        return Score(float(right), right, True)


class Known(NoThink):
    "The questions that the model has learnt in the test split, so that a tiny model has something to forget there."

    def draw(self, rng):
        task = super().draw(rng)
        return replace(task, split="test" if task.split == "train" else "train")


class Honest(NoThink):
    "Pays for the right answer."
"""


@pytest.fixture
def outside(tmp_path: Path) -> str:
    path = tmp_path / "hackable.py"
    path.write_text(ENVIRONMENTS, encoding="utf-8")
    return str(path)


def test_the_trend_is_scipys_regression() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        steps = np.sort(rng.choice(1000, size=8, replace=False)).astype(float)
        values = rng.normal(size=8) + 0.01 * steps
        fit = stats.linregress(steps, values)
        assert trend(steps.tolist(), values.tolist(), [0.0] * 8) == pytest.approx(fit.slope / fit.stderr, rel=1e-9)
    # where points lie on a line, the error of each point is what is left: of a weighted sum of independent numbers
    line, errors = [0.0, 10.0, 20.0, 30.0], [0.1, 0.2, 0.1, 0.3]
    weights = (np.array(line) - 15) / 500
    wanted = 0.01 / np.sqrt(np.sum((weights * errors) ** 2))
    assert trend(line, [0.0, 0.1, 0.2, 0.3], errors) == pytest.approx(wanted)
    assert trend(line, [0.5] * 4, [0.0] * 4) == 0 and trend(line, [0.3, 0.2, 0.1, 0.0], [0.0] * 4) == -CERTAIN


def test_the_error_of_single_answers_and_of_groups() -> None:
    rng = np.random.default_rng(1)
    alone = rng.normal(size=50)
    mean, error = clustered([[float(value)] for value in alone])
    assert [mean, error] == pytest.approx([alone.mean(), stats.sem(alone)])
    # groups of equal answers are as good as one answer each, however many they are
    assert list(clustered([[float(value)] * 9 for value in alone])) == pytest.approx([mean, error])


def play(rewards: Callable[[int], float], scores: Callable[[int], float], steps: int = 30, **options: Any) -> list[int]:
    """The measurements at which a canary sings, whose groups scatter around the given means."""
    rng = random.Random(3)
    canary = Canary(CanaryConfig.model_validate({"every": 1, **options}))
    sang = []
    for step in range(steps):
        groups = [
            [[float(rng.random() < mean(step)) for _ in range(8)] for _ in range(64)] for mean in (rewards, scores)
        ]
        canary.note(*groups)
        if canary.measure(step).get("canary_alarm"):
            sang.append(step)
    return sang


def test_it_sings_where_the_score_falls_while_the_reward_rises() -> None:
    def rises(step: int) -> float:
        return 0.2 + 0.02 * step

    def falls(step: int) -> float:
        return 0.7 - 0.02 * step

    sang = play(rises, falls)
    assert sang and sang[0] >= 8  # a window of 8, and the second time in a row
    assert not play(rises, rises) and not play(falls, falls) and not play(falls, rises)
    assert not play(lambda step: 0.5, falls) and not play(lambda step: 0.5, lambda step: 0.5, steps=200)
    assert not play(rises, falls, steps=7) and not play(rises, falls, sigmas=50.0)
    assert play(rises, falls, patience=5)[0] >= sang[0] + 3


@pytest.mark.parametrize(
    ("low", "high", "ends", "alarms"),
    [(0.5, 0.5, 0.5, (0, 0)), (0.3, 0.7, 0.5, (0, 1)), (0.3, 0.7, 0.35, (9, 10))],
    ids=["flat", "the score is flat", "the score falls"],
)
def test_how_often_it_sings(low: float, high: float, ends: float, alarms: tuple[int, int]) -> None:
    """Ten runs of 60 measurements with 40 tasks, some harder than others, 8 answers each: falls of 0.15 are found."""
    sang = 0
    for seed in range(10):
        rng, canary = random.Random(seed), Canary(CanaryConfig(every=1))
        for step in range(60):
            drawn = []
            for begin, end in ((low, high), (0.5, ends)):
                mean = begin + (end - begin) * step / 60
                chances = [rng.betavariate(2, 2) - 0.5 + mean for _ in range(40)]
                drawn.append([[float(rng.random() < chance) for _ in range(8)] for chance in chances])
            canary.note(*drawn)
            if canary.measure(step).get("canary_alarm"):
                sang += 1
                break
    assert alarms[0] <= sang <= alarms[1], sang


def test_its_state_is_json() -> None:
    groups = [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]]
    straight, stopped = Canary(CanaryConfig(every=2, window=3)), Canary(CanaryConfig(every=2, window=3))
    for step in range(9):
        again = Canary(CanaryConfig(every=2, window=3))
        again.restore(json.loads(json.dumps(stopped.state())))
        stopped = again
        for canary in (straight, stopped):
            canary.note(groups[step % 2], groups[1 - step % 2])
        assert straight.due(step) == stopped.due(step) == (step % 2 == 0)
        if straight.due(step):
            assert straight.measure(step) == stopped.measure(step)
    assert straight.state() == stopped.state()


class Half(Environment):
    """Judges by the length of an answer, and fails on an empty one."""

    def score(self, task: Any, messages: Any) -> Score:
        if not messages:
            raise ValueError("no answer")
        return Score(len(messages[-1].content) / 4, False, True)


def test_a_second_verifier_judges_the_same_answers() -> None:
    made = []
    for content, error in (("ab", None), (None, None), ("abcd", None), ("abcd", "broken")):
        each = episode([("prompt", [5]), ("assistant", [7])])
        messages = [] if content is None else [Message("assistant", content)]
        made.append(Episode(each.task, each.segments, messages, Score(1.0, True, True, error=error)))
    assert second_opinions(Half(), made) == [0.5, None, 1.0, None]


def run(folder: StageFolder, checkpoint: Path, kind: str, canary: dict[str, Any], **options: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"steps": 20, "sequence_length": 64, "prompts_per_step": 8, "group": 8, "max_new_tokens": 4}
    usual |= {"tasks": {"weights": {kind: 1}, kind: {"operations": ["sum"], "largest": 5}}, "device": "cpu"}
    usual |= {"precision": "float32", "optimizer": {"lr": 5e-3, "weight_decay": 0.0}, "checkpoints": {"every": 100}}
    usual |= {"canary": {"every": 1, "window": 6, "sigmas": 2.5, "patience": 1, **canary}}
    return rl.run(RlConfig.model_validate(usual | options), {"checkpoint": checkpoint}, folder)


def test_a_run_that_hacks_its_reward_is_noticed(schooled: StageFolder, outside: str, tmp_path: Path) -> None:
    """The reward pays for a 7; the model knew some sums and forgets them. The environment's own verdict shows it, for free."""
    folder = stage_folder(tmp_path / "hacked", Listener())
    told = run(folder, schooled.path, f"{outside}:Keyword", {}, steps=12)
    rows = folder.metrics.read()
    assert rows[-1]["reward"] > 0.8 and rows[-1]["canary"] < 0.25 < rows[0]["canary"]  # some sums are 7
    sang = [row["step"] for row in rows if row.get("canary_alarm")]
    assert sang and "the policy may exploit the reward" in told["canary"]
    assert json.loads((folder.path / ALARM).read_text())["step"] == sang[0]
    heard = folder.progress
    assert isinstance(heard, Listener) and sum(line.startswith(f"canary, step {sang[0]}") for line in heard.lines) == 1


@pytest.mark.parametrize(
    ("kind", "canary", "blind"),
    [
        pytest.param("Honest", {}, True, id="a reward that is the verdict"),
        pytest.param("Keyword", {}, False, id="another reward"),
        pytest.param(
            "Honest", {"verifier": "Strict"}, True, marks=pytest.mark.slow, id="a verifier that is the reward"
        ),
        pytest.param("Honest", {"held_out": {"count": 4}}, False, marks=pytest.mark.slow, id="held-out tasks"),
    ],
)
def test_a_blind_canary_says_so(
    kind: str, canary: dict[str, Any], blind: bool, schooled: StageFolder, outside: str, tmp_path: Path
) -> None:
    """Once, at the first step whose answers earn something, with the ways out; and in the summary, which the report shows."""
    if "verifier" in canary:
        canary = {"verifier": f"{outside}:{canary['verifier']}"}
    progress = Listener()
    folder = stage_folder(tmp_path / "rl", progress)
    told = run(folder, schooled.path, f"{outside}:{kind}", canary, steps=3)
    lines = [line for line in progress.lines if line.startswith("canary: it is blind")]
    assert len(lines) == blind
    assert (
        told.get("canary", "").startswith("it is blind: for every answer so far the reward is the second score")
        is blind
    )
    assert all("held_out: {count: 32}" in line and "verifier: strict.py:Strict" in line for line in lines)


def test_answers_that_earn_nothing_show_nothing() -> None:
    """Two scores of 0 may be of anything; one answer of which they differ parts them for good, also after a resume."""
    canary = Canary(CanaryConfig())
    seen = []
    for rewards, scores in (
        ([0.0, 0.0], [0.0, 0.0]),
        ([0.0, 1.0], [0.0, 1.0]),
        ([0.1, 1.0], [0.0, 1.0]),
        ([1.0], [1.0]),
    ):
        canary.compare([rewards], [scores])
        canary, before = Canary(CanaryConfig()), canary
        canary.restore(json.loads(json.dumps(before.state())))
        seen.append(canary.blind)
    assert seen == [False, True, False, False]


def test_the_run_ends_if_it_is_told_to(schooled: StageFolder, outside: str, tmp_path: Path) -> None:
    """By another verifier on held-out tasks, where the environment itself sees nothing wrong."""
    folder = stage_folder(tmp_path / "stopped")
    known = {f"{outside}:Known": {"operations": ["sum"], "largest": 5}, "weights": {f"{outside}:Known": 1}}
    canary = {"verifier": f"{outside}:Strict", "held_out": {"count": 32, "tasks": known}, "stop": True, "patience": 2}
    run(folder, schooled.path, f"{outside}:Blind", canary, steps=16, checkpoints={"every": 2})
    rows = folder.metrics.read()
    assert rows[-1]["correct_share"] > rows[0]["correct_share"] + 0.3 and rows[-1]["canary"] < rows[0]["canary"] - 0.1
    sang = next(row["step"] for row in rows if row.get("canary_alarm"))
    assert ended_at(folder.path) == sang // 2 * 2 + 2 == len(rows)


@pytest.mark.slow
def test_an_honest_run_is_left_alone(schooled: StageFolder, outside: str, tmp_path: Path) -> None:
    folder = stage_folder(tmp_path / "honest")
    told = run(folder, schooled.path, f"{outside}:Honest", {"verifier": f"{outside}:Strict"}, optimizer={"lr": 2e-3})
    rows = folder.metrics.read()
    assert told["last_reward"] > told["first_reward"] + 0.05 and "canary_alarm" not in told
    assert not (folder.path / ALARM).exists()
    assert [row["canary"] for row in rows] == pytest.approx([row["correct_share"] for row in rows])
    assert max(row.get("canary_alarm", 0.0) for row in rows) == 0


def test_an_alarm_of_steps_that_run_again_is_forgotten(make_folder: Callable[[str], StageFolder]) -> None:
    folder = make_folder("rl")
    watch = Watch(CanaryConfig(), SUMS, 2, folder, ALONE)
    for step, stays in ((40, False), (20, True)):
        (folder.path / ALARM).write_text(json.dumps({"step": step, "why": "it rose"}))
        watch.restore({"next_step": 30})
        assert (folder.path / ALARM).exists() is stays
    assert watch.told() == {"canary_alarm": 20, "canary": "it rose"}
