"""No test question of any task kind is a train question, whatever its capitals, blanks and marks."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import TASKS, Environment
from ingot.envs.files import FileEnvironment
from ingot.envs.mix import TaskMix
from ingot.envs.rows import Row
from ingot.envs.task import Task, plain, plain_prompt
from ingot.recipe.single import load_stage
from ingot.workspace.outside import load_outside

RECIPES = Path(__file__).parents[2] / "recipes"
WORLDS: dict[str, tuple[int, dict[str, Any]]] = {  # draws, of a world so small that much is asked twice
    "arithmetic": (1000, {"digits_min": 1, "digits_max": 1, "typed": True}),
    "calculator": (1400, {"operators": ("+", "-"), "digits_min": 1, "digits_max": 2, "typed": True}),
    "countdown": (600, {"numbers_min": 2, "numbers_max": 2, "largest": 6, "target_max": 12}),
    "graph_paths": (300, {"nodes_min": 4, "nodes_max": 4, "edges_per_node": 0.75}),
    "instructions": (60, {"most": 1}),
    "knights_knaves": (100, {"people_min": 2, "people_max": 2}),
    "math_templates": (600, {"topics": ("linear", "fractions", "remainder")}),
    "no_think": (600, {"typed": True}),
    "reasoning_gym": (60, {"family": "gcd"}),
    "small_talk": (1000, {}),
    "sorting": (600, {"count_min": 2, "count_max": 2, "digits_max": 1}),
    "strings": (
        1000,
        {"operations": ("reverse", "last"), "letters_min": 2, "letters_max": 2, "alphabet": "abcdef", "typed": True},
    ),
    "sudoku": (100, {"empty_min": 1, "empty_max": 2}),
    "zebra": (100, {"houses": 2, "attributes": 2, "minimal": False}),
}
TWICE = {"arithmetic", "calculator", "countdown", "no_think", "small_talk", "sorting", "strings"}
OF_FILES = ("gsm8k", "humaneval", "math", "mbpp", "prompts", "verifiers")  # below, and tests/envs/tasks
OUTSIDE = {"quickstart_chat.py:Chat": {"unseen": True, "earlier": 0}, "real_model.py:Sums": {}, "rl/zero.py:Zero": {}}


def test_every_kind_is_looked_at() -> None:
    assert {*WORLDS, *OF_FILES} == {*TASKS.names()}


def asked(kind: Environment, draws: int) -> dict[str, list[Task]]:
    """Tasks that are drawn, by what is the same question."""
    rng = random.Random(7)
    found: dict[str, list[Task]] = {}
    for _ in range(draws):
        task = kind.draw(rng)
        found.setdefault(plain_prompt(task), []).append(task)
    return found


@pytest.mark.parametrize("name", WORLDS)
def test_a_question_is_in_one_split(name: str) -> None:
    if name == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    draws, options = WORLDS[name]
    found = asked(TASKS.find(name)(**options), draws)
    assert not [tasks for tasks in found.values() if len({task.split for task in tasks}) > 1]
    assert {task.split for tasks in found.values() for task in tasks} == {"train", "test"}
    written = [{task.question for task in tasks} for tasks in found.values()]
    assert sum(len(forms) > 1 for forms in written) > 20 or name not in TWICE  # else it would show nothing


@pytest.mark.parametrize("spec", OUTSIDE)
def test_so_are_those_of_the_kinds_beside_the_recipes(spec: str) -> None:
    found = asked(load_outside(f"{RECIPES}/{spec}")(**OUTSIDE[spec]), 400)
    assert not [tasks for tasks in found.values() if len({task.split for task in tasks}) > 1]


def test_a_chat_is_held_out_where_its_recipe_says_so() -> None:
    """Last turns against all that the quickstart's SFT asks: small talk is learnt by heart, and nothing else is."""
    written = yaml.safe_load((RECIPES / "quickstart.yaml").read_text())["stages"]["sft"]["tasks"]
    tasks = TaskMixConfig.model_validate(written)
    trained = {plain(task.question) for task in TaskMix(tasks).generate(1, 1000, "train")}
    trained |= {plain(task.question) for task in tasks.kind("small_talk").generate(1, 4000, "train")}
    recipe, _ = load_stage(RECIPES / "quickstart-chat.yaml", "eval", inputs={})
    for suite in recipe.stages[0].config.suites:  # type: ignore[attr-defined]
        (each,) = suite.kinds
        chats = suite.difficulty.kind(each.kind).generate(0, each.count, "test")
        seen = sum(plain(task.question) in trained for task in chats)
        assert seen == 0 if suite.held_out else seen > 0.9 * len(chats), suite.name


class Trivia(FileEnvironment):
    """Questions of a file."""

    def read(self, row: Row, place: str) -> Task | None:
        return self.ask(str(row["question"]), str(row["answer"]))


def test_a_train_row_that_asks_what_a_test_row_asks_is_left_out(tmp_path: Path) -> None:
    """In other capitals, with other blanks and marks; what differs by a sign or a number is another question."""
    test = ["What is 3 - 1?", "Who wrote Hamlet?", "How much is 1.5 * 2?"]
    train = ["what is 3 - 1", "Who wrote  Hamlet", "What is 3 + 1?", "How much is 15 * 2?", "who's there"]
    for name, questions in (("train", train), ("test", test)):
        rows = (json.dumps({"question": question, "answer": "1"}) for question in questions)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    files = {name: (str(tmp_path / f"{name}.jsonl"),) for name in ("train", "test")}
    kind = Trivia(**files)
    assert [task.question for task in kind.rows("train") or ()] == train[2:]
    together = Trivia(files=files["train"] + files["test"])
    splits = [{plain_prompt(task) for task in together.rows(split) or ()} for split in ("train", "test")]
    assert not splits[0] & splits[1] and len(splits[0] | splits[1]) == 6
