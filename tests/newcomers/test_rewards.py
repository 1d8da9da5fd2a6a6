"""A reward function of my own, as docs/guides/environment.md shows it, in RL by turns and asynchronous, in evals, from Python."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ingot.envs.episode import Episode, Score
from ingot.envs.errors import EnvironmentFailed
from ingot.envs.rewards import OwnRewards
from ingot.envs.task import make_task
from ingot.evals.scores.scores import load_scores
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from ingot.tokens.chat import Message
from ingot.workspace.errors import CheckFailed, RecipeError
from ingot.workspace.files import read_jsonl
from tests.evals.conftest import World
from tests.making.recipes import assert_refused

GUIDE = Path(__file__).parents[2] / "docs/guides/environment.md"
TOKENS = "async def tokens(episode):\n    return episode.sampled_count\n"
RECIPE = """
name: mine
inputs: {checkpoint: CHECKPOINT}
stages:
  rl:
    {sequence_length: 128, device: cpu, precision: float32, steps: 2, tasks: {weights: {no_think: 1}}, prompts_per_step: 2,
     group: 2, max_new_tokens: 3, record_every: 1, rewards: {brevity.py:brevity: 0.2, tokens.py:tokens: -0.5}}
  eval:
    device: cpu
    suites: [{suite: tasks, kinds: [{kind: no_think, count: 4}], max_new_tokens: 5, rewards: [tokens.py:tokens]}]
"""


@pytest.fixture
def recipe(world: World, tmp_path: Path) -> Path:
    shown = re.search(r"```python\n# brevity\.py\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert shown is not None
    (tmp_path / "brevity.py").write_text(shown[1], encoding="utf-8")
    (tmp_path / "tokens.py").write_text(TOKENS, encoding="utf-8")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("CHECKPOINT", str(world.checkpoint)), encoding="utf-8")
    return path


def check_rl(folder: Path, task_weight: float) -> None:
    """What each answer earned, from its recorded tokens; and the means in the metrics."""
    rows = read_jsonl(folder / "trajectories.jsonl")
    assert len(rows) == 8
    for row in rows:
        sampled = sum(len(node["pieces"]) for node in row["nodes"] if node["sampled"])
        assert row["rewards"]["tokens"] == sampled > 0 and 0.8 < row["rewards"]["brevity"] <= 1
        expected = task_weight * row["correct"] + 0.2 * row["rewards"]["brevity"] - 0.5 * sampled
        assert row["reward"] == pytest.approx(expected)
    for step in (0, 1):
        (metrics,) = (
            row for row in read_jsonl(folder / "metrics.jsonl") if row.get("step") == step and "reward" in row
        )
        own = [row for row in rows if row["step"] == step]
        for name in ("tokens", "brevity"):
            assert metrics[f"reward/{name}"] == pytest.approx(sum(row["rewards"][name] for row in own) / 4)
        assert metrics["reward"] == pytest.approx(sum(row["reward"] for row in own) / 4)


def test_it_grades_answers_by_turns_and_in_an_eval(recipe: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    result = run_recipe(load_recipe(recipe), runs)
    check_rl(result.stages[0].folder, 1.0)
    scores = load_scores(result.stages[1].folder)["reward/tokens"].estimate
    assert scores.count == 4 and 1 <= scores.value <= 5
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["done"] * 2
    with (tmp_path / "brevity.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == [
        "to do"
    ] * 2  # the eval is of its checkpoint


def test_it_grades_answers_of_asynchronous_samplers(recipe: Path, tmp_path: Path) -> None:
    changes = {"eval": None, "rl.asynchronous": {}, "rl.rewards": {"task": 0}}
    check_rl(run_recipe(load_recipe(recipe, changes), tmp_path / "runs").stages[0].folder, 0.0)


def test_in_python_the_function_itself_will_do(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    brevity = importlib.import_module("brevity").brevity
    expected = load_recipe(recipe).stages[0].config
    assert load_recipe(recipe, {"rl.rewards": {brevity: 0.2}}).stages[0].config == expected
    with pytest.raises(RecipeError, match="at the top level of a file"):
        load_recipe(recipe, {"rl.rewards": [lambda episode: 0.0]})
    script = """
        import json
        from ingot.envs.rewards import OwnRewards
        from ingot.recipe.load import load_recipe

        def terse(episode):
            return 1.0

        weights = load_recipe("recipe.yaml", {"rl.rewards": [terse]}).stages[0].config.rewards
        print(json.dumps([weights, OwnRewards(weights).functions["terse"] is terse]))
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script), encoding="utf-8")
    command = [sys.executable, "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(GUIDE.parents[2])}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    weights, same = json.loads(ran.stdout)  # one line: the script was not run a second time
    assert weights[f"{tmp_path}/script.py:terse"] == 1.0 and same


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("brevity.py:brevity", "brevity.py:brevty", "brevity.py has no brevty\n  fix: did you mean brevity?"),
        ("brevity.py:brevity", "terse.py:brevity", "there is no file"),
        (
            "brevity.py:brevity: 0.2, ",
            "brevity: 0.2, ",
            "rewards.brevity: there is no reward function brevity\n  fix: write file.py:function, where the",
        ),
        ("brevity.py:brevity", "brevity.py:Episode", "is not a function, which a reward function is"),
        ("brevity.py:brevity", "pair.py:pair", "cannot be called with (episode)"),
        ("brevity.py:brevity", "pair.py:tokens", "rewards: tokens is also another function's name"),
        ("rewards: [tokens.py:tokens]", "rewards: [tokens.py:tokns]", "eval.suites.0.rewards"),
        ("brevity: 0.2,", "brevity: much,", "expected a number, given the text 'much'"),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, old: str, new: str, said: str) -> None:
    pair = "def pair(episode, other):\n    return 1.0\n\n\ndef tokens(episode):\n    return 1.0\n"
    (recipe.parent / "pair.py").write_text(pair, encoding="utf-8")
    assert_refused(recipe, old, new, said)


def episodes(*answers: str) -> list[Episode]:
    return [
        Episode(make_task("sums", "2 + 2?", "4"), [], [Message("assistant", each)], Score(0.5, True, True))
        for each in answers
    ]


def grade(folder: Path, body: str, *answers: str, **options: float) -> list[Score]:
    path = folder / "mine.py"
    path.write_text(
        f"import time\nfrom ingot.envs.errors import EnvironmentFailed\n\ndef mine(episode):\n{body}", encoding="utf-8"
    )
    return [each.score for each in OwnRewards({f"{path}:mine": 2.0}, **options)(episodes(*answers))]


def test_what_an_answer_can_cause_counts_as_nothing(tmp_path: Path) -> None:
    first, second = grade(tmp_path, "    return int(episode.answer)", "3", "three")
    assert (first.reward, second.reward) == (6.5, 0.5)
    assert dict(first.detail) == {} and dict(second.detail) == {"answers_unreadable": 1.0}
    slow = "    time.sleep(float(episode.answer))\n    return 1"
    first, second = grade(tmp_path, slow, "0", "1.5", seconds=0.3)
    assert (first.reward, second.reward) == (2.5, 0.5) and dict(second.detail) == {"answers_too_slow": 1.0}
    known, unknown = grade(
        tmp_path, "    if episode.answer:\n        raise EnvironmentFailed('no judge')\n    return 1", "", "x"
    )
    assert known.error is None and unknown.error == "no judge"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    return float('nan')", "mine.py:mine: the reward mine is nan, not a number"),
        ("    return None", "the reward mine is None, not a number"),
        ("    return nothing", "mine.py:5: the reward mine raised NameError: name 'nothing' is not defined"),
        ("    raise SystemExit(2)", "mine.py:5: the reward mine raised SystemExit: 2"),
        (
            "    return int(episode.answer)",
            "mine.py:5: the reward mine raised ValueError for each of the first 2 answers",
        ),
    ],
)
def test_what_is_no_answers_doing_ends_the_run(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        grade(tmp_path, body, "three", "four")
    assert said in str(caught.value)
    assert EnvironmentFailed not in type(caught.value).__mro__
