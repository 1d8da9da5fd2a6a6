"""What a newcomer adds, from outside the package: each thing one file of few lines, in a real run, with errors that help.

The files are in `examples/`; those that docs/guides/task-kind.md shows are run as they stand there.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
from itertools import combinations
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from ingot.cli.app import app
from ingot.envs.config import TaskMixConfig
from ingot.envs.mix import TaskMix
from ingot.evals.scores.scores import load_scores
from ingot.recipe.flow import RunResult, run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.single import load_stage
from ingot.recipe.work import list_work
from ingot.train.losses.policy_gradient import PolicyGradient
from ingot.train.losses.surrogates import Clip
from ingot.train.losses.terms import Scored
from ingot.workspace.files import read_jsonl
from ingot.workspace.outside import load_outside
from tests.envs.script import wrong
from tests.evals.conftest import World
from tests.making.recipes import assert_refused
from tests.making.rows import write_rows

OUTSIDE = Path(__file__).parents[2] / "examples"
GUIDE = Path(__file__).parents[2] / "docs/guides/task-kind.md"
COMMON = "sequence_length: 128, device: cpu, precision: float32"
TASKS = "{weights: {squares.py:Squares: 1}, squares.py:Squares: {largest: 60}}"
RECIPE = f"""
name: mine
inputs: {{checkpoint: CHECKPOINT, shards: SHARDS}}
stages:
  sft: {{{COMMON}, steps: 2, tasks: {TASKS}, task_conversations: 8, batch_conversations: 2}}
  rl:
    {{{COMMON}, steps: 2, tasks: {TASKS}, prompts_per_step: 2, group: 2, max_new_tokens: 3, algorithm: pass_at_k.py:PassAtK,
     record_every: 1}}
  eval:
    device: cpu
    suites:
      - {{suite: tasks, kinds: [{{kind: squares.py:Squares, count: 4}}], difficulty: {{squares.py:Squares: {{largest: 60}}}}}}
      - {{suite: echoes.py:Echoes, times: 3}}
"""


def shown() -> dict[str, str]:
    """The files that the guide shows, by name."""
    blocks = re.findall(r"```python\n# (\w+\.py)[^\n]*\n(.*?)```", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    return dict(blocks)


@pytest.fixture
def recipe(world: World, tmp_path: Path) -> Path:
    """A recipe, with the files beside it: what the guide shows is taken from the guide."""
    shutil.copytree(OUTSIDE, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    assert {"squares.py", "echoes.py", "pass_at_k.py"} <= shown().keys()
    for name, code in shown().items():
        (tmp_path / "mine" / name).write_text(code, encoding="utf-8")
    path = tmp_path / "mine" / "recipe.yaml"
    text = RECIPE.replace("CHECKPOINT", str(world.checkpoint)).replace("SHARDS", str(world.shards))
    path.write_text(text, encoding="utf-8")
    return path


def test_each_thing_is_one_file_of_few_lines(recipe: Path) -> None:
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in recipe.parent.glob("*.py")}
    assert len(lines) > 5 and max(lines.values()) <= 40


def statuses(result: RunResult) -> list[str]:
    return [stage.status for stage in result.stages]


def test_task_suite_and_algorithm_in_a_real_run(recipe: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    result = run_recipe(load_recipe(recipe), runs)
    assert statuses(result) == ["done"] * 3
    sampled = read_jsonl(result.stages[1].folder / "trajectories.jsonl")
    assert {row["kind"] for row in sampled} == {"squares"}
    scores = load_scores(result.stages[2].folder)
    assert scores["accuracy/squares"].estimate.count == 4
    assert scores["echoes"].estimate.count == 3 and scores["echoes"].label == "Words repeated after 3"
    again, _ = load_stage(result.stages[0].folder / "recipe.yaml", "sft")  # a stage's own recipe is in another folder
    assert again.stages[0].config == load_recipe(recipe).stages[0].config
    # nothing is done again, unless a file has changed: then what names it, and what follows
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["done"] * 3
    with (recipe.parent / "echoes.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["done", "done", "to do"]
    with (recipe.parent / "squares.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert [work.status for work in list_work(load_recipe(recipe), runs)] == ["to do"] * 3


def test_a_task_with_a_tool_of_its_own(world: World, recipe: Path, tmp_path: Path) -> None:
    """SFT reads its solutions, RL offers its tool."""
    text = recipe.read_text(encoding="utf-8").replace(TASKS, "{weights: {lookups.py:Colours: 1}}")
    recipe.write_text(text.replace(f", shards: {world.shards}", ""), encoding="utf-8")  # only `eval` takes shards
    changes: dict[str, object] = {"eval": None}
    changes |= dict.fromkeys(("sft.sequence_length", "rl.sequence_length"), 512)  # the tool's declaration is long
    assert statuses(run_recipe(load_recipe(recipe, changes), tmp_path / "runs")) == ["done"] * 2
    mix = TaskMix(TaskMixConfig(weights={f"{recipe.parent}/lookups.py:Colours": 1.0}))
    for task in mix.generate(0, 8, "train"):
        assert mix.score(task, mix.solution(task)).reward == 1
        assert mix.score(task, wrong(mix.solution(task))).reward == 0


def test_an_environment_with_state_a_tool_and_two_rewards(world: World, recipe: Path, tmp_path: Path) -> None:
    """RL plays it, and `ingot env test` tries it."""
    text = recipe.read_text(encoding="utf-8").replace(TASKS, "{weights: {locks.py:Locks: 1}}")
    recipe.write_text(text.replace(f", shards: {world.shards}", ""), encoding="utf-8")
    changes: dict[str, object] = {"eval": None, "sft": None, "rl.sequence_length": 512}
    changes["rl.algorithm"] = f"{recipe.parent}/cispo.py:Cispo"
    result = run_recipe(load_recipe(recipe, changes), tmp_path / "runs")
    sampled = read_jsonl(result.stages[0].folder / "trajectories.jsonl")
    assert {row["kind"] for row in sampled} == {"locks"} and all(
        set(row["rewards"]) == {"correct", "turns"} for row in sampled
    )
    tried = CliRunner().invoke(app, ["env", "test", str(recipe.parent / "locks.py"), "--count", "8", "--json"])
    trial = json.loads(tried.stdout)
    assert tried.exit_code == 0 and trial["problems"] == []
    assert {
        each["policy"]: each["solved"] for each in trial["earned"] if each["policy"] != "one answer"
    } == dict.fromkeys(["drawn calls", "nothing", "form only", "the question", "random words"], 0.0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('state["turns"] += 1', "1 / 0", "ZeroDivisionError: division by zero"),
        ("number: int", "number: str", "TypeError"),  # a text is below no number
        ('state["turns"] += 1', "await __import__('asyncio').sleep(60)", "no answer in 0.2 seconds"),
    ],
)
def test_a_tool_that_always_raises_is_found_out(tmp_path: Path, old: str, new: str, said: str) -> None:
    """The lock has no solution, so no other policy calls its tool."""
    code = (OUTSIDE / "locks.py").read_text(encoding="utf-8").replace(old, new)
    if "sleep" in new:
        code = code.replace("tools = (turn,)", "tools = (make_tool(turn, deadline=0.2),)")
        code = code.replace("import Task\n", "import Task\nfrom ingot.envs.tools.tool import make_tool\n")
    (tmp_path / "locks.py").write_text(code, encoding="utf-8")
    tried = CliRunner().invoke(app, ["env", "test", str(tmp_path / "locks.py"), "--count", "4", "--json"])
    (problem,) = json.loads(tried.stdout)["problems"]
    assert tried.exit_code == 1
    assert problem.startswith('the tool turn fails in all 4 calls drawn from its schema: turn({"number": ')
    assert said in problem


def test_a_tool_whose_schema_says_nothing_was_not_tried(tmp_path: Path) -> None:
    code = (OUTSIDE / "locks.py").read_text(encoding="utf-8")
    schema = '{"name": "turn", "parameters": {"properties": {"number": {"$ref": "#/defs/number"}}}}'
    code = code.replace("tools = (turn,)", f"tools = (make_tool(turn, schema={schema}),)")
    code = code.replace("import Task\n", "import Task\nfrom ingot.envs.tools.tool import make_tool\n")
    (tmp_path / "locks.py").write_text(code, encoding="utf-8")
    tried = CliRunner().invoke(app, ["env", "test", str(tmp_path / "locks.py"), "--count", "4"])
    assert tried.exit_code == 0 and "note: the tool turn was not tried" in " ".join(tried.stdout.split())


@pytest.mark.parametrize(
    ("paid", "said"), [("1.0", "nothing solves 100.0%"), ("0.5", "nothing earns 0.500 and solves nothing")]
)
def test_an_environment_that_pays_for_nothing_is_found_out(tmp_path: Path, paid: str, said: str) -> None:
    (tmp_path / "generous.py").write_text(
        "from ingot.envs.environment import Environment, reward\n\n\n"
        "class Generous(Environment):\n"
        "    def draw(self, rng):\n        return self.ask(f'{rng.random()}', 'x')\n\n"
        f"    @reward()\n    def correct(self, episode):\n        return {paid}\n"
    )
    tried = CliRunner().invoke(app, ["env", "test", str(tmp_path / "generous.py")])
    assert tried.exit_code == 1 and f"a policy that says {said}" in tried.stdout


def test_an_environment_of_which_some_tasks_have_no_solution_is_tried_without(tmp_path: Path) -> None:
    row = {"prompt": "Write about tea without commas.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    write_rows(tmp_path / "rows.jsonl", [row])
    words = ["env", "test", "instructions", "--split", "test", "--set", f"test=['{tmp_path}/rows.jsonl']"]
    tried = CliRunner().invoke(app, words)
    assert "note: not every task has a solution" in tried.stdout
    assert "note: the splits were not compared: no files have train tasks" in tried.stdout
    assert "problem: a policy that says the question solves 100.0%" in tried.stdout  # it has no comma, either


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "{largest: 60}}, task_conv",
            "{largets: 60}}, task_conv",
            "sft.tasks.squares.py:Squares.largets\n  fix: did you mean largest?",
        ),
        (
            "{largest: 60}}, task_conv",
            "{largest: 1}}, task_conv",
            "input should be greater than or equal to 2, given the number 1",
        ),
        (
            "squares.py:Squares: 1",
            "squares.py:Sqares: 1",
            "RECIPE/squares.py has no Sqares\n  fix: did you mean Squares?",
        ),
        (
            "suite: echoes.py:Echoes, times: 3",
            "suite: echoes.py:Echoes, tmes: 3",
            "eval.suites.1.tmes\n  fix: did you mean times?",
        ),
        (
            "suite: echoes.py:Echoes",
            "suite: squares.py:Squares",
            "does not derive from Suite, the base class of every eval suite\n  fix: write class ",
        ),
        (
            "suite: echoes.py:Echoes, times: 3",
            "suite: neddle",
            "eval.suites.1.suite: there is no eval suite neddle\n  fix: did you mean needle?",
        ),
        (
            "algorithm: pass_at_k.py:PassAtK",
            "algorithm: pass_at_n.py:PassAtK",
            "there is no file RECIPE/pass_at_n.py\n  fix: write the path from",
        ),
        (
            "algorithm: pass_at_k.py:PassAtK",
            "algorithm: no_loss.py:NoLoss",
            "NoLoss has no surrogate, which every RL algorithm has\n  fix: write def surrogate(self) -> Surrogate",
        ),
        ("algorithm: pass_at_k.py:PassAtK", "algorithm: dpo", "rl.algorithm: there is no RL algorithm dpo"),
        (
            "algorithm: pass_at_k.py:PassAtK",
            "clip_high: 0.3",
            "unknown key rl.clip_high\n  fix: write algorithm: {algorithm: grpo, clip_high: ...}",
        ),
        (
            "algorithm: pass_at_k.py:PassAtK",
            "tools: [calculater]",
            "rl.tools.0: there is no tool calculater\n  fix: did you mean calculator?",
        ),
        (
            "    suites:\n",
            "    needle: null\n    suites:\n",
            "unknown key eval.needle\n  fix: write suites: [{suite: needle, lengths: [256, 512]}]",
        ),
    ],
)
def test_errors_say_where_and_what_to_do(recipe: Path, old: str, new: str, said: str) -> None:
    code = "from ingot.post.rl.objective import GroupRelative\n\n\nclass NoLoss(GroupRelative):\n    pass\n"
    (recipe.parent / "no_loss.py").write_text(code, encoding="utf-8")
    assert_refused(recipe, old, new, said)


def test_the_algorithm_is_pass_at_k(recipe: Path) -> None:
    """By hand: the mean, over all sets of k that an answer is in, of (the set's reward − mean over all sets) / deviation."""
    for right, others, k in ((1, 3, 2), (2, 4, 3), (3, 1, 1)):
        count, rewards = right + others, [1.0] * right + [0.0] * others
        sets = {each: max(rewards[at] for at in each) for each in combinations(range(count), k)}
        mean, deviation = statistics.mean(sets.values()), statistics.pstdev(sets.values())
        of_each = [[(sets[each] - mean) / deviation for each in sets if at in each] for at in range(count)]
        expected = [statistics.mean(values) for values in of_each]
        algorithm = load_outside(f"{recipe.parent}/pass_at_k.py:PassAtK")(k=k)
        assert algorithm.group_advantages(rewards) == pytest.approx(expected)
        assert algorithm.answer_advantages([*rewards, None], count + 1) == pytest.approx([*expected, 0.0])
        assert algorithm.group_advantages([0.0] * 4) == [0.0] * 4


def test_the_algorithm_is_cispo() -> None:
    """Its gradient, by hand: −clip(r) A on each token; where PPO's clip cuts a token off, this does not."""
    term = PolicyGradient(load_outside(f"{OUTSIDE}/cispo.py:ClippedWeights")(0.2, 0.28))
    logprobs = torch.tensor([-1.0, -1.0, -1.0], dtype=torch.float64, requires_grad=True)
    streams = {
        "response_mask": torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64),
        "advantage": torch.tensor([2.0, -1.0, 5.0], dtype=torch.float64),
        "sampled_logprob": torch.tensor([-2.0, -1.0, -1.0], dtype=torch.float64),
    }
    (gradient,) = torch.autograd.grad(term.numerator(Scored(logprobs, streams))[0], logprobs)
    assert gradient.tolist() == pytest.approx([-1.28 * 2.0, 1.0, 0.0])
    (clipped,) = torch.autograd.grad(PolicyGradient(Clip(0.2, 0.28)).numerator(Scored(logprobs, streams))[0], logprobs)
    assert clipped[0] == 0
