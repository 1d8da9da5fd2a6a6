"""Pass rates over a run, tasks that are set aside, curricula: against closed forms and binomial tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from scipy import stats

from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Episode, Score
from ingot.envs.task import Task, make_task
from ingot.model.transformer import Transformer
from ingot.post.algorithms.grpo import Grpo
from ingot.post.rl.config import RlConfig
from ingot.post.rl.curriculum.difficulty import Difficulty, DifficultyConfig
from ingot.post.rl.source import RlSource
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed, Interrupted
from ingot.workspace.stage import StageFolder
from tests.post.making import drawn, engine_of, episode, samplers_of, tiny_model
from tests.post.rl.test_asynchronous import make_config, played_source


def task(name: str, kind: str = "rows", **data: Any) -> Task:
    return make_task(kind, name, "1", data=data, thinking=False)


def group(of: Task, solved: int, count: int = 4, failed: int = 0) -> list[Episode]:
    """Answers to a task, so many right."""
    plain = episode([("prompt", [5, 6]), ("assistant", [7, 8])])
    scores = [Score(float(place < solved), place < solved, True) for place in range(count)]
    scores += [Score(0.0, False, False, error="it broke")] * failed
    return [Episode(of, plain.segments, [], score) for score in scores]


def difficulty(**options: Any) -> Difficulty:
    return Difficulty(DifficultyConfig.model_validate(options), {"drawn"}, seed=1)


def test_the_pass_rate_forgets() -> None:
    """After groups of n with s_1, s_2, … right: Σ m^(k−i) s_i / Σ m^(k−i) n. Failed environments are no answers."""
    kept, known = difficulty(memory=0.5), task("a")
    for solved in (4, 1, 0):
        kept.note(0, [group(known, solved, failed=2)])
    assert kept.rate(known) == pytest.approx((4 * 0.25 + 1 * 0.5 + 0) / (4 * 0.25 + 4 * 0.5 + 4))
    kept.note(0, [group(task("b"), 0, count=0, failed=3)])
    assert kept.rate(task("b")) is None


def test_rows_are_known_by_id_and_made_up_tasks_by_level() -> None:
    kept = difficulty()
    kept.note(0, [group(task("a"), 4), group(task("1 + 1?", "drawn", level=2), 4), group(task("x", "drawn"), 1)])
    assert kept.rate(task("b")) is None and kept.rate(task("a")) == 1
    assert kept.rate(task("another", "drawn", level=2)) == 1 and kept.rate(task("another", "drawn", level=3)) is None
    assert kept.rate(task("another", "drawn")) == 0.25
    metrics = kept.note(1, [group(task("a"), 4), group(task("new", "drawn", level=2), 0)])
    assert metrics["difficulty/easy"] == 1 and metrics["share/drawn/2"] == 0.5 and metrics["share/drawn"] == 0
    assert metrics["pass_rate/drawn/2"] == pytest.approx((4 * 0.5) / (4 * 0.5 + 4))
    assert not any(name.startswith(("share/rows", "pass_rate/rows")) for name in metrics)


def test_shares_by_difficulty_are_of_what_was_known_before() -> None:
    kept = difficulty()
    asked = [group(task(name), solved) for name, solved in (("a", 0), ("b", 2), ("c", 4))]
    first = kept.note(0, asked)
    assert {name: first[f"difficulty/{name}"] for name in ("new", "hard", "middle", "easy")} == {
        **{"new": 1.0, "hard": 0.0},
        **{"middle": 0.0, "easy": 0.0},
    }
    second = kept.note(1, [*asked, group(task("d"), 1)])
    assert [second[f"difficulty/{name}"] for name in ("new", "hard", "middle", "easy")] == [0.25] * 4


def test_too_easy_and_too_hard_tasks_rest() -> None:
    kept = difficulty(set_aside={"low": 0.2, "high": 0.8, "steps": 10}, memory=0.0)
    hard, right, easy = (task(name) for name in "abc")
    metrics = kept.note(5, [group(hard, 0), group(right, 2), group(easy, 4)])
    assert metrics["set_aside"] == 2
    for step, wanted in ((5, [False, True, False]), (14, [False, True, False]), (15, [True, True, True])):
        assert [kept.wants(each, "0", step) for each in (hard, right, easy)] == wanted
    assert kept.wants(task("new"), "0", 5)


@pytest.mark.parametrize(
    ("curriculum", "expected"),
    [
        ("prioritized", [1.0, 0.75, 0.5, 0.25, 0.05]),
        ({"curriculum": "prioritized", "floor": 0.3}, [1.0, 0.75, 0.5, 0.3, 0.3]),
        ("learnable", [0.05, 0.75, 1.0, 0.75, 0.05]),
        ("pools", [0.25, 1.0, 1.0, 1.0, 0.05]),
        ({"curriculum": "pools", "hard": 0.25, "easy": 0.75}, [0.25, 0.25, 1.0, 0.05, 0.05]),
    ],
    ids=str,
)
def test_a_task_is_asked_with_its_chance(curriculum: Any, expected: list[float]) -> None:
    """Pass rates of 0, 1/4, … 1: how often each is asked of 1,000 times is what a coin of that weight gives."""
    kept = difficulty(curriculum=curriculum)
    tasks = [task(str(number)) for number in range(5)]
    kept.note(0, [group(each, number) for number, each in enumerate(tasks)])
    for each, chance in zip(tasks, expected, strict=True):
        asked = sum(kept.wants(each, str(place), 1) for place in range(1000))
        assert stats.binomtest(asked, 1000, chance).pvalue > 1e-3 if chance < 1 else asked == 1000
        again = sum(kept.wants(each, str(place), 1) for place in range(1000))
        assert again == asked, "it follows from the place in the stream"


def test_a_curriculum_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from ingot.post.rl.curriculum.curriculum import Curriculum\n\n\n"
        "class Mine(Curriculum):\n    factor: float = 1.0\n\n"
        "    def weight(self, rate):\n        return self.factor * rate\n",
        encoding="utf-8",
    )
    for factor, wanted in ((1.0, True), (0.0, False)):
        kept = difficulty(curriculum={"curriculum": f"{path}:Mine", "factor": factor})
        kept.note(0, [group(task("a"), 4)])
        assert kept.wants(task("a"), "0", 1) is wanted
    kept = difficulty(curriculum={"curriculum": f"{path}:Mine", "factor": 3.0})
    kept.note(0, [group(task("a"), 4)])
    with pytest.raises(CheckFailed, match=r"(?s)pass rate 1\.000 is 3\.0.*from 0 to 1"):
        kept.wants(task("a"), "0", 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"curriculum": "pool"}, "there is no curriculum pool"),
        ({"set_aside": {"low": 0.9, "high": 0.1}}, r"low \(0\.9\) is above high"),
        ({"curriculum": {"curriculum": "pools", "hard": 0.5, "easy": 0.5}}, r"hard \(0\.5\) must be below easy"),
    ],
    ids=["name", "range", "pools"],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        difficulty(**options)


def test_its_state_is_json() -> None:
    kept = difficulty(curriculum="learnable", set_aside={"low": 0.3})
    kept.note(7, [group(task(str(number)), number) for number in range(5)])
    again = difficulty(curriculum="learnable", set_aside={"low": 0.3})
    again.restore(json.loads(json.dumps(kept.state())))
    places = [(task(str(number)), f"{place}", 20 * place) for number in range(5) for place in range(20)]
    assert [again.wants(*each) for each in places] == [kept.wants(*each) for each in places]
    assert again.state() == kept.state()
    tried = Difficulty(DifficultyConfig(), {"drawn"}, 1, {task("a").id: (3.0, 8.0)})
    tried.restore({})
    assert tried.rate(task("a")) == 0.375


def digits(model: Transformer, config: RlConfig, folder: StageFolder) -> RlSource:
    """Answers that are right where the numbers are short."""
    source = RlSource(model, config, folder)

    def sample(tasks: Sequence[Task], *_: Any) -> list[Episode]:
        return [
            group(each, 3 if each.data["level"] == 1 else int(index % config.group < 1), count=1)[0]
            for index, each in enumerate(tasks)
        ]

    engine_of(source).sample = sample  # type: ignore[method-assign,assignment]
    return source


SUMS = {"weights": {"arithmetic": 1}, "arithmetic": {"digits_min": 1, "digits_max": 2, "short": 0.4}}


def shares(tokenizer: Tokenizer, folder: StageFolder, **options: Any) -> list[float]:
    """The share of short sums among what is asked, batch by batch."""
    config = RlConfig.model_validate(
        {"steps": 9, "sequence_length": 64, "prompts_per_step": 60, "group": 4, "tasks": SUMS, "algorithm": Grpo()}
        | {"device": "cpu", "precision": "float32", **options}
    )
    source = digits(tiny_model(tokenizer), config, folder)
    found = []
    for step in range(9):
        batch = drawn(source, step)
        episodes, metrics = batch.episodes, batch.metrics
        found.append(sum(each.task.data["level"] == 1 for each in episodes) / len(episodes))
        if step and options:
            assert metrics["share/arithmetic/1"] == pytest.approx(found[-1])
            assert metrics["pass_rate/arithmetic/1"] == 1 and metrics["pass_rate/arithmetic/2"] == 0.25
    return found


def test_a_solved_level_becomes_rare(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """Short sums are always right, long ones a quarter of the time: shares follow from their weights after the first batch."""
    plain = shares(tokenizer, make_folder("plain"))
    share = sum(plain) / len(plain)
    steered = shares(tokenizer, make_folder("steered"), difficulty={"curriculum": "learnable"})
    assert steered[0] == plain[0]
    expected = 0.05 * share / (0.05 * share + 0.75 * (1 - share))
    assert sum(steered[1:]) / 8 == pytest.approx(expected, abs=0.03) and share > 0.2
    rested = shares(tokenizer, make_folder("rested"), difficulty={"set_aside": {"steps": 5}})
    assert rested[1:5] == [0.0] * 4 and rested[5] > 0.1, "it rests for five steps, and comes again"


def test_a_batch_that_was_not_collected_is_not_known(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop after sampling, while the batch is stamped: the checkpoint knows nothing of it, since it will be sampled again."""
    config = RlConfig.model_validate(
        {"steps": 9, "sequence_length": 64, "prompts_per_step": 6, "group": 4, "tasks": SUMS, "algorithm": Grpo()}
        | {"device": "cpu", "precision": "float32", "exclude_solved": 1.0, "canary": {"every": 2}}
        | {"difficulty": {"curriculum": "learnable"}}
    )
    source = digits(tiny_model(tokenizer), config, make_folder("rl"))
    source.update(0)
    first = json.dumps(source.state())

    def stop(samples: Any) -> Any:
        raise Interrupted

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(source.pipeline, "algorithm", SimpleNamespace(rewarded=False, wants_old=False, streams=stop))
        source.update(1)
    assert json.dumps(source.state()) == first
    straight = digits(tiny_model(tokenizer), config, make_folder("straight"))
    again = digits(tiny_model(tokenizer), config, make_folder("again"))
    again.restore(json.loads(first))
    straight.update(0)
    for step in (1, 2):
        straight.update(step)
        again.update(step)
    assert json.dumps(straight.state()) == json.dumps(again.state()) != first


def test_an_asynchronous_stage_passes_over_tasks(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    tasks = TaskMixConfig.model_validate(SUMS)
    options: dict[str, Any] = {"group": 2, "algorithm": Grpo(), "tasks": tasks, "canary": None}
    options |= {"difficulty": {"set_aside": {"steps": 50}}, "prompts_per_step": 8}
    source = played_source(tiny_model(tokenizer), make_config(**options), make_folder("rl"))
    dispatcher = samplers_of(source).dispatcher
    stream, difficulty = dispatcher.stream, source.choice.difficulty
    assert difficulty is not None
    easy = next(stream[number] for number in range(50) if stream[number].data["level"] == 1)
    difficulty.note(1, [group(easy, 4)])
    dispatcher.dispatch()
    assert {stream[number].data["level"] for number in dispatcher.running} == {2}
    again = played_source(tiny_model(tokenizer), make_config(**options), make_folder("rl"))
    again.restore(json.loads(json.dumps(source.state())))
    assert again.choice.difficulty is not None and again.choice.difficulty.state() == difficulty.state()
