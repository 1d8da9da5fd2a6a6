"""A kind of stage from one file outside: it trains, is planned, resumes, and shows its panel in the report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingot.planner.plan import make_plan
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from ingot.report.build import contents
from ingot.report.read import read_run
from ingot.workspace.errors import Interrupted
from ingot.workspace.files import read_jsonl
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress
from tests.evals.conftest import World
from tests.making.recipes import assert_refused

GUIDE = Path(__file__).parents[2] / "docs/guides/stage-kind.md"
RECIPE = """
name: mine
inputs: {{checkpoint: {world.checkpoint}, shards: {world.shards}}}
stages:
  lines: {{stage: lines.py:Lines, file: {folder}/verses.txt, steps: 4, sequence_length: 64, device: cpu, precision: float32}}
  eval: {{suites: [bits_per_byte], limit: 2, device: cpu}}
"""


@pytest.fixture
def recipe(world: World, tmp_path: Path) -> Path:
    """A recipe that names the guide's file, which lies beside it."""
    (code,) = re.findall(r"```python\n(# lines\.py.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(code.splitlines()) <= 60
    (tmp_path / "lines.py").write_text(code, encoding="utf-8")
    (tmp_path / "verses.txt").write_text(
        "The sun rises.\nA river runs to the sea.\nNight falls.\n" * 3, encoding="utf-8"
    )
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(world=world, folder=tmp_path), encoding="utf-8")
    return tmp_path / "recipe.yaml"


class StopAt(Progress):
    """Asks for a stop after a step, as Ctrl-C would."""

    def __init__(self, stop: StopSignal, step: int) -> None:
        super().__init__()
        self.asked, self.step = stop, step

    def advance(self, done: int, **values: object) -> None:
        if done == self.step:
            self.asked.request()


def test_a_stage_from_outside(recipe: Path, tmp_path: Path) -> None:
    loaded = load_recipe(recipe)
    planned = make_plan(loaded, tmp_path / "runs").stages[0]
    assert (planned.kind, planned.status, planned.cost.steps) == ("lines.py:Lines", "to do", 4)
    whole = run_recipe(loaded, tmp_path / "whole")
    stop = StopSignal()
    with pytest.raises(Interrupted, match="its work is saved"):
        run_recipe(loaded, tmp_path / "runs", progress=StopAt(stop, 2), stop=stop)
    assert [work.status for work in list_work(loaded, tmp_path / "runs")] == ["to resume", "to do"]
    result = run_recipe(loaded, tmp_path / "runs")
    losses = [[row["loss"] for row in read_jsonl(run.stages[0].folder / "metrics.jsonl")] for run in (whole, result)]
    assert len(losses[0]) == 4 and losses[0] == losses[1]
    shown = contents(read_run(result.folder))["stages"][0]
    assert not read_run(result.folder).problems
    assert shown["kind"] == "lines.py:Lines"
    assert [row["loss"] for row in shown["panel"]["Loss of every step"]] == losses[0]
    assert [stage.status for stage in run_recipe(loaded, tmp_path / "runs").stages] == ["reused"] * 2
    (tmp_path / "elsewhere").mkdir()
    for name in ("lines.py", "recipe.yaml"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    moved = tmp_path / "elsewhere/recipe.yaml"
    assert [work.status for work in list_work(load_recipe(moved), tmp_path / "runs")] == ["done", "done"]
    with (tmp_path / "elsewhere/lines.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(moved), tmp_path / "runs")] == ["to do", "to do"]
    record = read_run(result.folder)  # the file is gone from where it was: all but its panel is there
    assert record.problems == [f"stage lines: there is no file {tmp_path / 'lines.py'}"]
    assert len(record.stages[0].metrics) == 4 and not record.stages[0].panel


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lines.py:Lines,", "lines.py:Line,", "has no Line\n  fix: did you mean Lines?"),
        ("lines.py:Lines,", "lines.py:LineSource,", "does not derive from Stage, the base class of every stage kind"),
        ("steps: 4", "stepz: 4", "unknown key lines.stepz\n  fix: did you mean steps?"),
    ],
)
def test_errors_are_those_of_built_in_kinds(recipe: Path, old: str, new: str, said: str) -> None:
    assert_refused(recipe, old, new, said)
