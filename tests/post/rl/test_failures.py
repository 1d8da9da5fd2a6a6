"""Environments that fail, deadlines that pass and answers that are all cut: a run goes on, and no prompt is lost."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ingot.envs.config import TaskMixConfig
from ingot.envs.episode import Score
from ingot.envs.rollout import episode_run as play
from ingot.envs.rollout import rollout
from ingot.model.transformer import Transformer
from ingot.post.algorithm import Samples
from ingot.post.rewards.reward_shaping import OverlongConfig
from ingot.post.rl import stage as rl
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import spread_metrics, token_mean
from ingot.post.rl.source import RlSource
from ingot.post.samplers.task_stream import TaskStream
from ingot.tokens.batch import Batch
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.loop import Trainer
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.post.making import SUMS, blank_batch, checkpoint_of, engine_of, episode, tiny_model
from tests.post.rl.test_source import EvenLast
from tests.train.parallel.ranks import run_ranks
from tests.train.toy import run_without_final_checkpoint

MakeFolder = Callable[[str], StageFolder]
NUMBERS = """
from ingot.envs.environment import Environment

class Numbers(Environment):
    "So many questions that none comes twice."

    def draw(self, rng):
        return self.ask(f"{rng.randrange(10**9)}?", "1", thinking=False)
"""
BROKEN = f"""{NUMBERS}
    def setup(self, task):
        asked.append(task.id)
        if len(asked) == 1:
            raise OSError("no room in the sandbox")

asked = []
"""


def make_config(**options: Any) -> RlConfig:
    usual: dict[str, Any] = {"steps": 3, "sequence_length": 64, "tasks": SUMS, "prompts_per_step": 2, "group": 3}
    usual |= {"max_new_tokens": 4, "algorithm": EvenLast(), "precision": "float32", "device": "cpu", "canary": None}
    return RlConfig.model_validate(usual | {"optimizer": {"lr": 1e-2}} | options)


def tasks_of(path: Path, text: str) -> dict[str, Any]:
    path.write_text(text, encoding="utf-8")
    return {"weights": {f"{path}:Numbers": 1.0}}


def trained(source: RlSource) -> list[dict[str, Any]]:
    """The metrics of the run, by the real loop."""
    terms = source.rl.terms(source.model, source.config)
    run_without_final_checkpoint(
        Trainer(source.model, terms, source, source.config, source.folder, after_step=source.check_ratio)
    )
    return source.folder.metrics.read()


def test_a_setup_that_fails_ends_no_run(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """It has no token, as if its prompt filled the row, and is no part of its group; nor does a penalty of length need one."""
    algorithm = EvenLast(overlong=OverlongConfig(buffer=2))
    config = make_config(tasks=tasks_of(tmp_path / "broken.py", BROKEN), algorithm=algorithm, retries=0)
    rows = trained(RlSource(tiny_model(tokenizer), config, make_folder("rl")))
    assert [row["failed_episodes"] for row in rows] == [1.0, 0.0, 0.0]


class EmptyOnce(RlSource):
    """Nothing of the second step can be learnt."""

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[list[Batch], dict[str, float]]:
        made, metrics = super().batches(step, rank, world)
        for stream in [stream for batch in made for stream in batch.streams.values() if step == 1]:
            stream.zero_()
        return made, metrics


def test_a_step_that_teaches_nothing_moves_nothing(tokenizer: Tokenizer, make_folder: MakeFolder) -> None:
    """Momentum and weight decay alone would."""
    optimizer = {"lr": 1e-2, "weight_decay": 0.1}
    config = make_config(algorithm=EvenLast(), optimizer=optimizer)
    source = EmptyOnce(tiny_model(tokenizer), config, make_folder("rl"))
    states = [source.model.embedding.weight.detach().clone()]

    def keep(step: int, metrics: dict[str, Any]) -> dict[str, float]:
        states.append(source.model.embedding.weight.detach().clone())
        return {}

    terms = source.rl.terms(source.model, source.config)
    run_without_final_checkpoint(Trainer(source.model, terms, source, config, source.folder, after_step=keep))
    assert [torch.equal(one, two) for one, two in pairwise(states)] == [False, True, False]


def test_a_penalty_of_length_needs_no_token() -> None:
    assert OverlongConfig(buffer=2).penalty(episode([("prompt", [5, 6])]), 8) == 0


class Clock:
    """The time of rollouts; a step of the engine takes a second."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (play, rollout):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


def slow_source(tokenizer: Tokenizer, folder: StageFolder, clock: Clock, **options: Any) -> RlSource:
    source = RlSource(tiny_model(tokenizer), make_config(**options), folder)
    engine = engine_of(source).engine
    engine_step = engine.step

    def step() -> None:
        engine_step()
        clock.now += 1

    engine.step = step  # type: ignore[method-assign]
    return source


def test_an_episode_does_not_pay_for_its_place_in_the_queue(
    tokenizer: Tokenizer, make_folder: MakeFolder, clock: Clock
) -> None:
    """Six answers of up to four seconds, one after the other: all of them end in the ten seconds that each has."""
    source = slow_source(tokenizer, make_folder("rl"), clock, slots=1, episode_seconds=10.0)
    source.update(0)
    assert clock.now > 1015 and source.held is not None
    assert source.held.metrics["failed_episodes"] == 0
    for group in source.held.groups:
        assert all(any(each.streams["response_mask"]) for each in group)


def test_an_episode_without_a_token_in_its_time_has_failed(
    tokenizer: Tokenizer, make_folder: MakeFolder, clock: Clock
) -> None:
    """Its turn takes longer than its time: nothing can be learnt from it, and the message does not speak of room."""
    source = slow_source(tokenizer, make_folder("rl"), clock, slots=2, episode_seconds=2.5, retries=0)
    sampler = engine_of(source)
    episodes = sampler.sample(sampler.choose(0, 0, 6), blank_batch(source, 0))
    late = [each for each in episodes if each.failed]
    assert late and all(
        "its time (episode_seconds) was over" in (each.score.error or "") and each.score.failed == "time"
        for each in late
    )
    assert all(each.ended == "error" and not each.sampled_count for each in late)


def still(model: Transformer) -> list[torch.Tensor]:
    return [each.detach().clone() for each in model.parameters()]


def test_a_step_without_a_token_to_learn_from_moves_nothing(tokenizer: Tokenizer, make_folder: MakeFolder) -> None:
    """An untrained model never ends its answer: every one is cut, and is masked."""
    options = {"optimizer": {"lr": 1e-2, "weight_decay": 0.0}}
    source = RlSource(
        tiny_model(tokenizer), make_config(algorithm=EvenLast(mask_truncated=True), **options), make_folder("rl")
    )
    before = still(source.model)
    for row in trained(source):
        assert (row["empty_step"], row["ratio_tokens"], row["loss"], row["gradient_norm"]) == (1.0, 0.0, 0.0, 0.0)
        assert "ratio_mean" not in row and "entropy" not in row, "means over nothing"
    assert all(torch.equal(one, other) for one, other in zip(before, source.model.parameters(), strict=True))


@pytest.mark.parametrize("pass_all", [False, True])
def test_a_mini_batch_of_failures_is_one_of_several(
    tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path, pass_all: bool
) -> None:
    """The second update of each batch has nothing to learn from; the first and the third have."""

    def with_failures(*given: Any, **named: Any) -> Any:
        made = plain(*given, **named)
        for each in made[6:12]:
            each.score = Score(0.0, False, False, error="the sandbox was killed")
        return made

    options = {"mini_batches": 3, "steps": 6, "pass_all": pass_all, "retries": 0}
    source = RlSource(tiny_model(tokenizer), make_config(**options), make_folder("rl"))
    plain = engine_of(source).sample
    engine_of(source).sample = with_failures  # type: ignore[method-assign]
    rows = trained(source)
    assert [row["empty_step"] for row in rows] == [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]
    assert rows[0]["gradient_norm"] > 0 == rows[1]["gradient_norm"] and rows[0]["ratio_tokens"] > 0
    assert all(row["loss"] == row["loss"] and row["failed_episodes"] == 6 for row in rows)


def test_failed_answers_are_sampled_again(tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path) -> None:
    """Every fifth setup fails: each group is whole in the end, the others' texts are those of a run without failures."""
    often = BROKEN.replace("len(asked) == 1", "len(asked) % 5 == 1")
    plain = make_config(tasks=tasks_of(tmp_path / "plain.py", NUMBERS))
    failing = make_config(tasks=tasks_of(tmp_path / "broken.py", often))
    whole = RlSource(tiny_model(tokenizer), plain, make_folder("whole"))
    source = RlSource(tiny_model(tokenizer), failing, make_folder("rl"))
    samplers = engine_of(whole), engine_of(source)
    first, second = (each.sample(each.choose(0, 0, 4) * 3, blank_batch(source, 0)) for each in samplers)
    assert not any(each.failed for each in second) and samplers[1].retried_groups > 0
    same = [one.tokens() == other.tokens() for one, other in zip(first, second, strict=True)]
    assert 6 <= sum(same) < 12, "another attempt draws another answer"
    rows = trained(source)
    assert all(row["failed_episodes"] == 0 and row["retried_groups"] > 0 for row in rows)


def test_what_fails_each_time_leaves_its_group(
    tokenizer: Tokenizer, make_folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first task every setup fails: three attempts, and the run goes on with the others; the last lines count them."""
    always = BROKEN.replace("len(asked) == 1", "task.id == asked[0]")
    config = make_config(tasks=tasks_of(tmp_path / "broken.py", always), mini_batches=2, steps=6, prompts_per_step=1)
    folder, said = make_folder("rl"), list[str]()
    monkeypatch.setattr(folder.progress, "say", said.append)
    told = rl.run(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "base")}, folder)
    assert told["failed_episodes"] == {"environment": 3}
    assert "3 episodes failed and taught nothing: environment 3" in said
    rows = folder.metrics.read()[::2]  # two updates on each batch
    assert [row.get("failed_episodes/environment") for row in rows] == [3.0, None, None]
    assert [(row["failed_episodes"], row["retried_groups"]) for row in rows] == [(3.0, 2.0), (0.0, 0.0), (0.0, 0.0)]


def test_no_reward_is_known_of_what_is_trained_on() -> None:
    """Others of the rounds of dynamic sampling were fine, so that the step is no error."""
    assert spread_metrics([None] * 4, 2) == {"reward_std": 0.0, "mixed_groups": 0.0}
    assert spread_metrics([None, None, 1.0, 0.0], 2) == {"reward_std": 0.5, "mixed_groups": 1.0}
    failed = [episode([("prompt", [5])]) for _ in range(2)]
    rows: Callable[[], list[list[float]]] = list
    assert token_mean([[0.0], [0.0]], Samples(failed, 2, rows, rows, rows, 8)) == 0


KILLING = f"""
import os, pathlib, signal, threading
from ingot.envs.environment import reward
from ingot.envs.verifiers.math.same_answer import same_answer
from ingot.sandbox.memory import descendants
from ingot.sandbox.pool import shared_pool
from ingot.sandbox.program import Limits, Program
{NUMBERS}
    @reward()
    def correct(self, episode):
        judged.append(episode.task.id)
        return self.verdict(len(judged))

def kill(name):
    "All children of that name, at work or idle."
    tasks = pathlib.Path("/proc/self/task").glob("*/children")
    below = [int(each) for path in tasks for each in path.read_text().split()]
    found = [each for each in below if name in pathlib.Path(f"/proc/{{each}}/cmdline").read_bytes()]
    victims = [one for each in found for one in descendants(each)[:2]]  # bwrap, and the first process inside
    for each in victims:
        os.kill(each, signal.SIGKILL)
    with pathlib.Path(__file__).with_suffix(".killed").open("a") as file:
        file.write(len(victims) * "x")

judged = []
"""
VERIFIER = KILLING.replace(
    "\ndef kill",
    """
    def verdict(self, number):
        if number == 10:  # in the third step
            kill(b"verifiers/worker.py")
        return float(same_answer("x^2+2x+1", "(x+1)^2"))

def kill""",
)
SANDBOX = KILLING.replace(
    "\ndef kill",
    """
    def verdict(self, number):
        hangs = number in (9, 10)
        if hangs:
            threading.Timer(1.0, kill, [b"bwrap"]).start()
        program = Program(source=f"import time; time.sleep({60 * hangs}); print(1)")
        return float(shared_pool().run(program, Limits(seconds=120)).stdout == b"1\\n")

def kill""",
)
DEADLINE = 240.0  # a judge imports SymPy first, on a machine that may be busy
STEPS, PROMPTS, GROUP = 6, 2, 2


def run_killing(text: str, tokenizer: Tokenizer, folder: StageFolder, **options: Any) -> list[dict[str, Any]]:
    """`rl.run` with an environment that kills its own helpers; the metrics. It is stopped if it hangs."""
    path = folder.path.parent / "killing.py"
    usual: dict[str, Any] = {"tasks": tasks_of(path, text), "steps": STEPS, "prompts_per_step": PROMPTS, "group": GROUP}
    config = make_config(**usual, record_every=1, **options)
    watch = threading.Timer(DEADLINE, folder.stop.request)
    watch.start()
    try:
        rl.run(config, {"checkpoint": checkpoint_of(tiny_model(tokenizer), folder.path.parent / "base")}, folder)
    finally:
        watch.cancel()
    assert path.with_suffix(".killed").read_text(), "something was killed"
    return folder.metrics.read()


def trained_numbers(folder: StageFolder, path: Path) -> list[int]:
    """The places in the stream of tasks of all that was trained on; each answer has been judged."""
    rows = read_jsonl(folder.path / "trajectories.jsonl")
    assert len(rows) == STEPS * PROMPTS * GROUP and not any(row["error"] for row in rows)
    tasks = TaskMixConfig.model_validate({"weights": {f"{path}:Numbers": 1.0}})
    stream = TaskStream(tasks, folder.seed, PROMPTS)
    numbers = {stream[number].id: number for number in range(4 * STEPS * PROMPTS)}
    return sorted({numbers[row["task_id"]] for row in rows})


@pytest.mark.slow
def test_verifiers_that_are_killed_lose_no_prompt(tokenizer: Tokenizer, make_folder: MakeFolder) -> None:
    """SIGKILL of every child of the math verifier in mid-run, at work or idle: others are started."""
    folder = make_folder("rl")
    rows = run_killing(VERIFIER, tokenizer, folder)
    assert [row["failed_episodes"] for row in rows] == [0.0] * STEPS and rows[-1]["reward"] == 1.0
    assert trained_numbers(folder, folder.path.parent / "killing.py") == list(range(STEPS * PROMPTS))


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="kills the sandbox of bubblewrap")
@pytest.mark.parametrize(
    "asynchronous",
    [
        pytest.param(None, id="by turns"),
        pytest.param({"staleness": 2}, id="asynchronous", marks=pytest.mark.slow),
    ],
)
def test_sandboxes_that_are_killed_lose_no_prompt(
    tokenizer: Tokenizer, make_folder: MakeFolder, asynchronous: dict[str, int] | None
) -> None:
    """SIGKILL of the sandboxes while programs run in them, twice: those answers have no verdict, and are sampled again."""
    folder = make_folder("rl")
    rows = run_killing(SANDBOX, tokenizer, folder, asynchronous=asynchronous)
    under_way = 0 if asynchronous is None else asynchronous["staleness"] * PROMPTS
    assert sum(row["failed_episodes"] for row in rows) == 0
    assert 1 <= sum(row["retried_groups"] for row in rows) <= 2 * (PROMPTS + under_way)
    numbers = trained_numbers(folder, folder.path.parent / "killing.py")
    assert len(numbers) == STEPS * PROMPTS, "none comes twice"
    assert numbers[-1] < len(numbers) + under_way, "none is left behind"


def run_rank(base: Path, path: Path) -> dict[str, Any]:
    """The stage in one of several processes: every answer is cut, and is masked."""
    options = {"algorithm": {"algorithm": "grpo", "mask_truncated": True}, "mesh": {"shard": 2}}
    return rl.run(make_config(**options), {"checkpoint": base}, stage_folder(path))


@pytest.mark.slow
def test_two_processes_have_nothing_to_learn_from(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Both take the same steps, of gradient 0, instead of dividing by 0."""
    base = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    said = run_ranks(2, run_rank, tmp_path / "store", base, tmp_path / "rl")
    assert said[0] == said[1]
    rows = stage_folder(tmp_path / "rl").metrics.read()
    assert [(row["empty_step"], row["loss"], row["gradient_norm"]) for row in rows] == [(1.0, 0.0, 0.0)] * 3
