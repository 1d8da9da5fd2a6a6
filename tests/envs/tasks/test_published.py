"""Published sets as environments: every reference solution earns the reward, policies that know nothing earn none."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from ingot.envs.environment import TASKS, Environment
from ingot.envs.episode import Episode
from ingot.envs.pass_rates import earned, read_pass_rates, write_pass_rates
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.probes import Scripted, scripts
from ingot.envs.rollout.rollout import rollout
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import DataError
from tests.envs.rollout.test_rollout import CHAT

WIDE = Limits(max_new_tokens=100_000, max_tokens=200_000, max_turns=6)
SETS = {
    "gsm8k": {"train": ["gsm8k/train.jsonl.gz"], "test": ["gsm8k/test_dev.jsonl.gz"]},
    "math": {"train": ["math/math_test_minus_math500.jsonl.gz"], "test": ["math/math500_dev.jsonl.gz"]},
    "humaneval": {"test": ["humaneval/humaneval_dev.jsonl.gz"]},
    "mbpp": {"files": ["mbpp/mbpp.jsonl.gz"]},
}
SIZES = {"gsm8k": (7473, 658), "math": (4500, 243), "humaneval": (0, 79)}
TRIED = {"gsm8k": 60, "math": 60, "humaneval": 5, "mbpp": 5}


def make(name: str, data: Path, **options: object) -> Environment:
    files = {key: tuple(str(data / path) for path in paths) for key, paths in SETS[name].items()}
    return TASKS.find(name)(**files, **options)


@pytest.mark.parametrize("name", SETS)
def test_solutions_earn_and_those_who_know_nothing_do_not(name: str, shared_data: Path) -> None:
    environment = make(name, shared_data)
    tasks = environment.generate(1, TRIED[name], "test")
    environments = {environment.kind: environment}
    tried = scripts(environments, CHAT, tasks)
    earned = {}
    for policy, script in tried.items():
        done = rollout(tasks, Scripted(script, CHAT), CHAT, environments, limits=WIDE)
        assert not [episode.score.error for episode in done if episode.failed]
        earned[policy] = sum(episode.score.reward for episode in done) / len(done)
    assert earned.pop("scripted") == 1
    assert earned.pop("one answer") <= max(0.1, 1 / len(tasks))
    assert earned == dict.fromkeys(["nothing", "form only", "the question", "random words"], 0.0)
    for task in tasks[:4]:  # and a wrong answer in the right form
        assert environment.score(task, environment.weaker(task, random.Random(0))).reward == 0


@pytest.mark.parametrize("name", SIZES)
def test_the_files_own_splits(name: str, shared_data: Path) -> None:
    environment = make(name, shared_data)
    train, test = (environment.rows(split) or [] for split in ("train", "test"))
    assert len(test) == SIZES[name][1] and SIZES[name][0] - len(train) <= 20  # a question that comes twice comes once
    assert not {task.question for task in train} & {task.question for task in test}
    assert {task.split for task in train} <= {"train"} and {task.split for task in test} == {"test"}


def test_a_published_split_of_one_file(shared_data: Path) -> None:
    environment = make("mbpp", shared_data, row_split="train")
    both = [*(environment.rows("train") or []), *(environment.rows("test") or [])]
    assert len(both) == 374  # task ids 601 to 974


def test_more_held_out_tasks_than_there_are_is_an_error(shared_data: Path) -> None:
    with pytest.raises(DataError, match="asked for 80 test tasks, but the files have 79"):
        make("humaneval", shared_data).generate(0, 80, "test")
    with pytest.raises(DataError, match="give its train files"):
        make("humaneval", shared_data).generate(0, 1, "train")
    with pytest.raises(DataError, match="no files are given"):
        TASKS.find("gsm8k")().generate(0, 1, "train")


def test_a_python_session_lives_as_long_as_its_episode(shared_data: Path) -> None:
    """The second call finds the names of the first; two episodes do not see each other's."""
    environment = make("gsm8k", shared_data, python=True)
    tasks = environment.generate(2, 2, "test")

    def script(episode: Episode) -> Message:
        match episode.turns:
            case 0:
                return call(f"found = {episode.task.answer}\nprint('kept')")
            case 1:
                return call("found")
        return Message("assistant", rf"\boxed{{{episode.messages[-1].content.strip()}}}", "so")

    def call(code: str) -> Message:
        return Message("assistant", "", "let me see", [ToolCall("python", {"code": code})])

    done = rollout(tasks, Scripted(script, CHAT), CHAT, {"gsm8k": environment}, limits=WIDE)
    for task, episode in zip(tasks, done, strict=True):
        assert [message.content for message in episode.messages if message.role == "tool"] == [
            "kept\n",
            f"{task.answer}\n",
        ]
        assert episode.score.reward == 1 and episode.state is None


def test_pass_rates_choose_train_tasks(shared_data: Path, tmp_path: Path) -> None:
    """Written from episodes, read by the environment: what is always or never solved is left out, and what was not tried."""
    environment = make("gsm8k", shared_data)
    tasks = environment.generate(4, 6, "train")
    number = {task.id: place for place, task in enumerate(tasks)}

    def sometimes(episode: Episode) -> Message:
        """The n-th task is solved by n of its five samples."""
        seen[episode.task.id] += 1
        right = seen[episode.task.id] <= number[episode.task.id]
        return Message("assistant", rf"\boxed{{{episode.task.answer if right else 'none'}}}", "")

    seen: Counter[str] = Counter()
    repeated = [task for task in tasks for _ in range(5)]
    done = rollout(repeated, Scripted(sometimes, CHAT), CHAT, {"gsm8k": environment}, limits=WIDE)
    path = tmp_path / "rates.jsonl"
    assert write_pass_rates(path, [(each.task, earned(each)) for each in done]) == 6
    assert list(read_pass_rates(str(path)).values()) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    chosen = make("gsm8k", shared_data, pass_rates=str(path), pass_rate=(0.2, 0.6))
    assert {task.id for task in chosen.rows("train") or ()} == {task.id for task in tasks[1:4]}
    none = make("gsm8k", shared_data, pass_rates=str(path), pass_rate=(0.85, 0.95))
    with pytest.raises(DataError, match=r"no train task has a pass rate from 0\.85 to 0\.95"):
        none.rows("train")
    assert len(chosen.rows("test") or ()) == 658 and chosen.outside().keys() > environment.outside().keys()
