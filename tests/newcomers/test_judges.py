"""A judge of my own, as docs/guides/small-parts.md shows it, in a suite and in an environment's options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingot.envs.environment import TASKS
from ingot.envs.verifiers.judges.pairwise import compare
from ingot.evals.scores.scores import load_scores
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from tests.evals.conftest import World
from tests.making.recipes import assert_refused
from tests.making.rows import write_rows

ROOT = Path(__file__).parents[2]
RECIPE = """
name: mine
inputs: {checkpoint: CHECKPOINT}
stages:
  eval:
    device: cpu
    form: chat
    suites: [{suite: alpaca, files: [FOLDER/rows.jsonl], max_new_tokens: 4, judge: {kind: keywords.py:Keywords, words: [yes]}}]
"""


@pytest.fixture
def recipe(world: World, tmp_path: Path) -> Path:
    """A recipe; the baseline's answers have the word in half of the rows, the tiny model's in none."""
    guide = (ROOT / "docs/guides/small-parts.md").read_text(encoding="utf-8")
    shown = re.search(r"```python\n# keywords\.py\n(.*?)```", guide, flags=re.DOTALL)
    assert shown is not None
    (tmp_path / "keywords.py").write_text(shown[1], encoding="utf-8")
    rows = [{"instruction": f"Task {n}", "input": "", "output": "yes yes" if n % 2 else "no"} for n in range(4)]
    write_rows(tmp_path / "rows.jsonl", rows)
    path = tmp_path / "recipe.yaml"
    path.write_text(
        RECIPE.replace("CHECKPOINT", str(world.checkpoint)).replace("FOLDER", str(tmp_path)), encoding="utf-8"
    )
    return path


def test_it_judges_a_suite_and_its_file_is_part_of_the_work(recipe: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    found = load_scores(run_recipe(load_recipe(recipe), runs).stages[0].folder)["alpaca/win_rate"]
    assert found.estimate.value == 0.25 and found.label.endswith("(judge keywords)")  # two lost, two ties
    with (tmp_path / "keywords.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["to do"]


def test_it_judges_for_an_environment(recipe: Path) -> None:
    spec = f"{recipe.parent}/keywords.py:Keywords"
    judged = TASKS.read({"task": f"{ROOT}/recipes/rl/judged.py:Judged", "judged_by": spec})
    judge = judged.judged_by.open(64)  # type: ignore[attr-defined]
    assert compare(judge, "Why?", "because because", "because") == 1
    assert compare(judge, "Why?", "no", "because") == 0 and compare(judge, "Why?", "no", "nothing") == 0.5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("keywords.py:Keywords", "keywords.py:Keyword", "keywords.py has no Keyword\n  fix: did you mean Keywords?"),
        ("words: [yes]", "wrds: [yes]", "judge.wrds\n  fix: did you mean words?"),
        ("kind: keywords.py:Keywords, words: [yes]", "url: http://x/v1", "judge.model is missing"),
        ("kind: keywords.py:Keywords, words: [yes]", "checkpont: x", "unknown key eval.suites.0.judge.checkpont"),
        ("kind: keywords.py:Keywords", "kind: server", "there is no judge server"),
        (
            "kind: keywords.py:Keywords",
            "kind: mute.py:Mute",
            "Mute has no open, which every judge has\n  fix: write def open(",
        ),
        ("kind: keywords.py:Keywords", "kind: mute.py:Other", "does not derive from JudgeConfig"),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, old: str, new: str, said: str) -> None:
    mute = "from ingot.envs.verifiers.judges.config import JudgeConfig\n\nclass Mute(JudgeConfig): pass\nclass Other: pass\n"
    (recipe.parent / "mute.py").write_text(mute, encoding="utf-8")
    assert_refused(recipe, old, new, said)
