"""The process of another Python, with a stand-in for it: what fails is failed and not zero, and nothing is left running.

With the real package: test_verifiers_package.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.probes import Scripted
from ingot.envs.rollout.rollout import rollout, rollouts
from ingot.envs.tasks import _verifiers_child
from ingot.envs.tasks.verifiers import Verifiers
from ingot.post.data.pairs.model_pairs import prompts
from ingot.post.prefer_config import PreferConfig
from ingot.post.synthesis.config import EnvironmentConfig
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError, IngotError, RecipeError
from tests.envs.rollout.test_rollout import CHAT
from tests.envs.tasks import stand_in
from tests.making.processes import wait_until

POLICY = Scripted(lambda _: Message("assistant", "three words here", thinking=""), CHAT)
LIMITS = Limits(hook_seconds=20.0)


@pytest.fixture
def python(tmp_path: Path) -> Iterator[str]:
    """An executable that answers as the other Python would."""
    path = tmp_path / "python"
    text = Path(stand_in.__file__).read_text()
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    yield str(path)
    _verifiers_child.close_children()


def kind(python: str, *faults: str, **options: Any) -> Verifiers:
    own = {name: options.pop(name) for name in ("wrong", "slow", "quits", "helper") if name in options}
    return Verifiers(environment="some", python=python, options={"faults": list(faults), **own}, **options)


def play(environment: Verifiers, times: int = 1) -> list[Episode]:
    tasks = sorted([*environment.rows("train"), *environment.rows("test")], key=lambda task: task.data["number"])
    repeated = [task for task in tasks for _ in range(times)]
    return rollout(repeated, POLICY, CHAT, {"verifiers": environment}, limits=LIMITS)


def children() -> list[_verifiers_child.VerifiersProcess]:
    return list(_verifiers_child._children.values())


def test_an_episode_has_the_environments_rewards_by_name(python: str) -> None:
    (episode,) = play(kind(python, "none"))
    score = episode.score
    assert (score.reward, score.correct, score.format_ok) == (0.75, True, True)
    assert (dict(score.rewards), dict(score.detail)) == ({"correct": 1.0, "brief": 0.25}, {"words": 3.0})
    assert [node.role for node in episode.nodes] == ["prompt", "assistant"]
    assert episode.task.answer == "0" and episode.task.question == "Question 0?"
    assert episode.state is None and {"environment", "sampling", "all"} <= set(episode.seconds)


def test_what_fails_is_failed_and_not_zero(python: str) -> None:
    done = play(kind(python, "raises", "none", "unscored"))
    assert [each.failed for each in done] == [True, False, True]
    assert done[0].score.error == "TaskError: scoring: ValueError: no" and done[0].ended == "error"
    assert all(node.logprobs is not None for node in done[0].nodes) and done[0].turns == 1


def test_a_process_that_is_killed_fails_its_episodes_and_is_started_again(python: str) -> None:
    environment = kind(python, "none", "dies", *["none"] * 6)
    first = play(environment)
    assert first[1].failed and "process of the environment has ended (exit code -9)" in str(first[1].score.error)
    killed = {each.pid for each in children()}
    second = play(environment)
    assert len(first) == len(second) == 8
    assert all(each.score.reward == 0.75 for each in (*first, *second) if not each.failed)
    # in `second` all eight may be lost with the one that dies; those beside which none dies are not
    harmless = [task for task in environment.rows("train") if task.data["fault"] == "none"]
    third = rollout(harmless, POLICY, CHAT, {"verifiers": environment}, limits=LIMITS)
    assert harmless and [each.score.reward for each in third] == [0.75] * len(harmless)
    assert {each.pid for each in children()}.isdisjoint(killed)


def test_a_hundred_episodes_with_faults_come_back_once_each(python: str) -> None:
    environment = kind(python, *["none"] * 17, "raises", "dies", "none", seconds=5.0)
    tasks = sorted([*environment.rows("train"), *environment.rows("test")], key=lambda task: task.data["number"])
    groups = list(rollouts(tasks, POLICY, CHAT, {"verifiers": environment}, group=5, at_once=8, limits=LIMITS))
    done = [episode for group in groups for episode in group]
    assert Counter(each.task.id for each in done) == {task.id: 5 for task in tasks}
    outcomes = Counter((each.task.data["fault"], each.failed) for each in done)
    assert outcomes["raises", True] == outcomes["dies", True] == 5
    assert outcomes["none", False] >= 45  # at most those that played beside one that died are lost with it
    assert all(each.score.reward == 0.75 for each in done if not each.failed)


def test_one_that_does_not_answer_fails_at_its_deadline_alone(python: str) -> None:
    began = time.monotonic()
    done = play(kind(python, "hangs", "none", seconds=1.0))
    assert [each.failed for each in done] == [True, False] and time.monotonic() - began < 20
    assert "did not end in 1 seconds" in str(done[0].score.error)
    assert len(children()) == 1 and children()[0].alive


def test_one_that_does_not_let_go_is_killed(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verifiers_child, "CANCEL_SECONDS", 0.5)
    environment = kind(python, "deaf", seconds=1.0)
    (episode,) = play(environment)
    assert episode.failed and not children()[0].alive


def test_a_caller_that_has_enough_leaves_nothing_behind(python: str) -> None:
    before = set(threading.enumerate())
    environment = kind(python, *["none"] * 8, "hangs")
    tasks = [*environment.rows("train"), *environment.rows("test")]
    groups = rollouts(tasks * 3, POLICY, CHAT, {"verifiers": environment}, at_once=4, limits=LIMITS)
    next(groups)
    groups.close()  # type: ignore[attr-defined]
    (child,) = children()
    assert child.alive
    wait_until(lambda: set(threading.enumerate()) <= before)
    calm = [task for task in tasks if task.data["fault"] == "none"]
    assert {each.score.reward for each in rollout(calm, POLICY, CHAT, {"verifiers": environment})} == {0.75}


def test_what_the_process_started_ends_with_it(python: str) -> None:
    """Also what has a session of its own, and also if the process was killed from outside."""
    environment = kind(python, "none", helper=600)
    play(environment)
    (child,) = children()
    mark = f"{_verifiers_child.MARK}={child._mark}"
    assert len(marked(mark)) == 2
    os.kill(child.pid, signal.SIGKILL)
    play(environment)
    wait_until(lambda: not marked(mark))
    (child,) = children()
    _verifiers_child.close_children()
    assert not child.alive
    wait_until(lambda: not marked(f"{_verifiers_child.MARK}={child._mark}"))


def test_it_ends_when_our_process_is_killed(python: str) -> None:
    code = (
        "import os, signal, sys; from ingot.envs.tasks.verifiers import Verifiers\n"
        f"kind = Verifiers(environment='some', python={python!r}, options={{'faults': ['none']}})\n"
        "kind.rows('train'); kind.rows('test'); print(kind._child('train').pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    wait_until(lambda: not Path(f"/proc/{int(done.stdout)}").exists())


def marked(mark: str) -> list[int]:
    """Processes that carry a mark."""
    found = []
    for each in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in each.read_bytes().split(b"\0"):
                found.append(int(each.parent.name))
        except OSError:
            continue
    return found


def refusal(environment: Verifiers) -> IngotError:
    with pytest.raises(IngotError) as caught:
        environment.rows("train")
    assert not children()
    return caught.value


def test_bad_input_is_named_with_its_place_and_a_fix(python: str, tmp_path: Path) -> None:
    missing = refusal(kind(str(tmp_path / "nowhere"), "none"))
    assert "cannot be started: No such file" in str(missing) and "pip install verifiers==0.4.0" in str(missing)
    assert str(tmp_path / "nowhere") in str(missing)

    options = refusal(kind(python, wrong=1))
    assert isinstance(options, RecipeError) and options.fix == "write them otherwise"
    assert str(options).startswith(f"some, {python}: its options do not fit: wrong")

    assert "not loaded in 0.5 seconds" in str(refusal(kind(python, slow=60, load_seconds=0.5)))
    assert "exit code 3): …no such thing" in str(refusal(kind(python, quits=True)))
    assert "no environment of verifiers is named" in str(refusal(Verifiers(python=python)))
    assert "there is no such file" in str(refusal(Verifiers(python=python, environment="missing/env.py")))
    assert "the environment has no tasks" in str(_no_tasks(python))

    with pytest.raises(ValidationError, match="seconds"):
        Verifiers(seconds=0)
    with pytest.raises(DataError, match="scores what is played in it"):
        kind(python).score(next(iter(kind(python, "none").rows("train")), None), [])  # type: ignore[arg-type]


def _no_tasks(python: str) -> IngotError:
    with pytest.raises(DataError) as caught:
        kind(python).rows("train")
    return caught.value


def test_a_python_without_verifiers_says_so() -> None:
    """Our own has none."""
    try:
        with pytest.raises(
            RecipeError, match=r"verifiers 0\.4 cannot be imported: No module named 'verifiers'"
        ) as caught:
            Verifiers(environment="some", python=sys.executable).rows("train")
        assert "pip install verifiers==0.4.0" in str(caught.value.fix)
    finally:
        _verifiers_child.close_children()


def test_splits_are_by_question_or_by_options_of_their_own(python: str, tmp_path: Path) -> None:
    environment = kind(python, *["none"] * 40)
    train, test = environment.rows("train"), environment.rows("test")
    assert len(train) + len(test) == 40 and 0 < len(test) < 20
    assert {task.split for task in train} == {"train"} and {task.split for task in test} == {"test"}

    held_out = kind(python, *["none"] * 5, held_out={"faults": ["none"] * 2})
    assert [task.data["number"] for task in held_out.rows("test")] == [0, 1]
    assert [task.data["number"] for task in held_out.rows("train")] == [2, 3, 4], "what is held out is no train task"

    file = tmp_path / "env.py"
    file.write_text("one = 1")
    before = Verifiers(environment=str(file)).outside()
    file.write_text("one = 2")
    assert before and Verifiers(environment=str(file)).outside() != before


def test_stages_that_would_write_its_episodes_as_plain_conversations_refuse_it(python: str) -> None:
    with pytest.raises(ValidationError, match="verifiers leads its episodes"):
        EnvironmentConfig(environment=kind(python, "none"))
    tasks = TaskMixConfig.model_validate({"weights": {"verifiers": 1}, "verifiers": kind(python, *["none"] * 9)})
    with pytest.raises(RecipeError, match="verifiers leads its episodes"):
        prompts(PreferConfig(tasks=tasks, prompts=2, steps=1, sequence_length=64), seed=0)


def test_a_recipe_names_it_as_any_other_kind(python: str) -> None:
    options = {"environment": "some", "python": python, "options": {"faults": ["none"] * 9}}
    mix = TaskMix(TaskMixConfig.model_validate({"weights": {"verifiers": 1, "strings": 1}, "verifiers": options}))
    tasks = mix.generate(0, 8, "train")
    assert Counter(task.kind for task in tasks) == {"verifiers": 4, "strings": 4}
    done = rollout(tasks, POLICY, CHAT, mix.kinds)
    assert {each.score.reward for each in done if each.task.kind == "verifiers"} == {0.75}
