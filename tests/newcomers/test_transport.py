"""A sampler transport of my own: asynchronous RL with samplers as threads, and the errors of a wrong one."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from ingot.planner.plan import make_plan
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.work import list_work
from ingot.workspace.files import read_jsonl
from tests.evals.conftest import World
from tests.making.recipes import assert_refused

THREADS = (Path(__file__).parent / "transport" / "threads.py").read_text(encoding="utf-8")
RECIPE = """
name: mine
inputs: {checkpoint: CHECKPOINT}
stages:
  rl:
    {sequence_length: 128, device: cpu, precision: float32, steps: 3, tasks: {weights: {no_think: 1}}, prompts_per_step: 2,
     group: 2, max_new_tokens: 3, record_every: 1, asynchronous: {samplers: 2, transport: threads.py:Threads}}
"""


@pytest.fixture
def recipe(world: World, tmp_path: Path) -> Path:
    (tmp_path / "threads.py").write_text(THREADS, encoding="utf-8")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.replace("CHECKPOINT", str(world.checkpoint)), encoding="utf-8")
    return path


def test_samplers_are_threads(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process is started; tokens have the probabilities of their versions, or the run would have ended (check_ratio)."""
    assert len(THREADS.splitlines()) <= 65
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", lambda self: pytest.fail("a process was started"))
    runs = tmp_path / "runs"
    assert [each.name for each in make_plan(load_recipe(recipe), runs).stages] == ["rl"]
    folder = run_recipe(load_recipe(recipe), runs).stages[0].folder
    rows = read_jsonl(folder / "trajectories.jsonl")
    versions = {version for row in rows for node in row["nodes"] for version in node["versions"] if version is not None}
    assert len(rows) == 12 and versions <= {0, 1, 2} and 0 in versions
    assert all(row["lost_samplers"] == 0 for row in read_jsonl(folder / "metrics.jsonl") if "lost_samplers" in row)
    elsewhere = {"rl.asynchronous": {"samplers": 1, "silence_seconds": 9.0}}  # how, not what
    assert [work.status for work in list_work(load_recipe(recipe, elsewhere), runs)] == ["done"]
    with (tmp_path / "threads.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["to do"]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("threads.py:Thread", "rl.asynchronous.transport: RECIPE/threads.py has no Thread"),
        ("threads.py:ThreadWorker", "does not derive from TransportConfig, the base class of every sampler transport"),
        ("locl", "there is no sampler transport locl\n  fix: did you mean local?"),
        ("{kind: threads.py:Threads, adress: x}", "unknown key rl.asynchronous.transport.adress"),
        ("local, ray: {address: auto}", "unknown key rl.asynchronous.ray\n  fix: write transport: {kind: ray, ...}"),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, new: str, said: str) -> None:
    assert_refused(recipe, "threads.py:Threads", new, said)
