"""Rejection sampling: what a writer attempts, what the environment pays for, and what becomes of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.rollout.rollout import rollout
from ingot.post import sampled_answers
from ingot.post.sft import run as run_sft
from ingot.post.sft_config import SftConfig
from ingot.post.synthesis import rejection
from ingot.post.synthesis.config import SynthesizeConfig
from ingot.post.synthesis.stage import run
from ingot.workspace.errors import DataError, RecipeError
from tests.data.synthesize.server import completion, serving
from tests.making.rows import read_rows
from tests.making.stages import stage_folder
from tests.post.making import SUMS, checkpoint_of, tiny_model, tiny_tokenizer

DOUBLES = '''
from pydantic import Field

from ingot.envs.environment import Environment, reward


class Doubles(Environment):
    """Twice a number."""

    largest: int = Field(9, description="the largest number")

    def draw(self, rng):
        number = rng.randint(0, self.largest)
        return self.ask(f"Twice {number}?", str(2 * number), thinking=False)

    @reward()
    def correct(self, episode):
        return float(episode.answer.split()[-1] == episode.task.answer)

    @reward(weight=0.5)
    def polite(self, episode):
        return float("please" in episode.answer)
'''


class Pupil:
    """A server: right if the seed of the request is even, polite if it is divisible by three, different in every answer."""

    def __init__(self) -> None:
        self.asked: dict[str, list[tuple[bool, bool]]] = defaultdict(list)

    def __call__(self, body: dict[str, Any], _: dict[str, str]) -> Any:
        question, seed = body["messages"][-1]["content"], body["seed"]
        right, polite = seed % 2 == 0, seed % 3 == 0
        self.asked[question].append((right, polite))
        twice = 2 * int(re.findall(r"\d+", question)[0])
        return completion(f"{'please' if polite else 'it is'} {seed} {twice if right else twice + 1}")


@pytest.fixture
def outside(tmp_path: Path) -> str:
    """An environment in a file of its own."""
    (tmp_path / "doubles.py").write_text(DOUBLES)
    return f"{tmp_path / 'doubles.py'}:Doubles"


def configured(url: str, environment: dict[str, Any] | str, **options: Any) -> SynthesizeConfig:
    entry = {"environment": environment, **options}
    return SynthesizeConfig.model_validate({"environments": [entry], "endpoint": {"url": url, "model": "pupil"}})


def rows_of(path: Path) -> list[dict[str, Any]]:
    return read_rows(path)


def test_right_answers_of_an_outside_environment_become_conversations(tmp_path: Path, outside: str) -> None:
    pupil, folder = Pupil(), stage_folder(tmp_path / "out")
    with serving(pupil) as url:
        config = configured(url, {"task": outside, "largest": 40}, count=12, samples=6)
        summary = run(config, {}, folder)["environments"]["doubles"]
    answers = [each for said in pupil.asked.values() for each in said]
    assert len(pupil.asked) == 12 and {len(said) for said in pupil.asked.values()} == {6}
    right = sum(right for right, _ in answers)
    assert 0 < right < 72 and summary["attempts"] == 72 and summary["kept"] == right
    assert summary["pass_rate"] == right / 72 and summary["refused"] == {"reward too low": 72 - right}
    kept = rows_of(folder.path / "conversations/doubles.jsonl")
    for row in kept:
        question, answer = row["messages"]
        number = int(re.findall(r"\d+", question["content"])[0])
        assert answer["content"].endswith(f" {2 * number}") and (question["role"], answer["role"]) == (
            "user",
            "assistant",
        )
        said = pupil.asked[question["content"]]
        assert row["pass_rate"] == sum(right for right, _ in said) / 6 and row["attempts"] == 6
        assert row["rewards"] == {"correct": 1.0, "polite": float("please" in answer["content"])}
        assert row["reward"] == 1 + 0.5 * row["rewards"]["polite"] and row["writer"] == "pupil"
    rates = {row["question"]: row["pass_rate"] for row in rows_of(folder.path / "pass_rates-doubles.jsonl")}
    assert rates == {question: sum(right for right, _ in said) / 6 for question, said in pupil.asked.items()}


def test_the_threshold_and_the_most_of_a_task(tmp_path: Path, outside: str) -> None:
    pupil, folder = Pupil(), stage_folder(tmp_path / "out")
    with serving(pupil) as url:
        config = configured(url, outside, count=8, samples=12, min_reward=1.5, most_kept=1)
        summary = run(config, {}, folder)["environments"]["doubles"]
    best = {question: sum(right and polite for right, polite in said) for question, said in pupil.asked.items()}
    assert summary["kept"] == summary["tasks_kept"] == sum(count > 0 for count in best.values()) > 0
    assert summary["refused"]["enough of this task"] == sum(max(0, count - 1) for count in best.values())


def test_equal_answers_are_kept_once(tmp_path: Path, outside: str) -> None:
    with serving(
        lambda body, _: completion(str(2 * int(re.findall(r"\d+", body["messages"][-1]["content"])[0])))
    ) as url:
        summary = run(configured(url, outside, count=3, samples=4), {}, stage_folder(tmp_path / "out"))
    assert summary["environments"]["doubles"]["kept"] == 3
    assert summary["environments"]["doubles"]["refused"] == {"said before": 9}


def test_an_interrupted_stage_asks_nothing_twice(tmp_path: Path, outside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejection, "PIECE", 6)
    original, calls = rollout, 0

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    first, second, whole = Pupil(), Pupil(), Pupil()
    options: dict[str, Any] = {"count": 10, "samples": 3}
    with serving(whole) as url:
        run(configured(url, {"task": outside, "largest": 99}, **options), {}, stage_folder(tmp_path / "whole"))
    cut = stage_folder(tmp_path / "cut")
    monkeypatch.setattr(sampled_answers, "rollout", failing)
    with serving(first) as url, pytest.raises(KeyboardInterrupt):
        run(configured(url, {"task": outside, "largest": 99}, **options), {}, cut)
    with serving(second) as url:
        run(configured(url, {"task": outside, "largest": 99}, **options), {}, cut)
    assert len(first.asked) == 4 and len(second.asked) == 6 and not set(first.asked) & set(second.asked)
    name = "conversations/doubles.jsonl"
    assert (cut.path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_checkpoint_writes_and_sft_learns_what_was_kept(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tiny_model(tiny_tokenizer()), tmp_path / "checkpoint")
    sums = {"task": "no_think", **SUMS.kind("no_think").model_dump(exclude={"task"})}
    entry = {"environment": sums, "count": 8, "samples": 4, "min_reward": 0.0, "max_length": 64}
    config = SynthesizeConfig.model_validate({"environments": [entry], "temperature": 1.0, "max_tokens": 30})
    folder = stage_folder(tmp_path / "out")
    summary = run(config, {"checkpoint": checkpoint}, folder)["environments"]["no_think"]
    assert summary["attempts"] == 32 and summary["kept"] + sum(summary["refused"].values()) == 32
    assert summary["kept"] > 0, "some attempts of a random model end by themselves"
    options = {"steps": 2, "sequence_length": 128, "tasks": None, "micro_batch_tokens": 256, "batch_conversations": 2}
    learnt = run_sft(
        SftConfig.model_validate(options),
        {"checkpoint": checkpoint, "conversations": folder.artifact("conversations")},
        stage_folder(tmp_path / "sft"),
    )
    assert learnt["conversations"] == summary["kept"]
    strict = SynthesizeConfig.model_validate({"environments": [{**entry, "min_reward": 2.0}], "max_tokens": 30})
    with pytest.raises(DataError, match="not one attempt was kept"):
        run(strict, {"checkpoint": checkpoint}, stage_folder(tmp_path / "strict"))


def broken(kind: str) -> Iterator[tuple[dict[str, Any], str]]:
    yield {}, "give `tasks`"
    yield {"environments": [{"environment": kind}, {"environment": kind}]}, "same short name"
    yield {"environments": [{"environment": kind}], "temperature": 0.0}, "temperature above 0"
    yield {"environments": [{"environment": "arithmetik"}]}, "arithmetic"


def test_what_makes_no_sense_is_an_error_that_says_so(tmp_path: Path, outside: str) -> None:
    for options, said in broken(outside):
        with pytest.raises(ValueError, match=said):
            SynthesizeConfig.model_validate(options)
    asking = SynthesizeConfig.model_validate({"environments": [{"environment": outside}]})
    with pytest.raises(RecipeError, match="neither an endpoint nor a checkpoint"):
        run(asking, {}, stage_folder(tmp_path / "none"))
    documents = SynthesizeConfig.model_validate({"tasks": [{"task": "notes"}]})
    with pytest.raises(RecipeError, match="no documents"):
        run(documents, {}, stage_folder(tmp_path / "documents"))
