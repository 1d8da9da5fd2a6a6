"""The asynchronous stage with real sampler processes: ratios, staleness, metrics, options; processes that are killed or hang."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ingot.model.transformer import Transformer
from ingot.post.algorithms.grpo import Grpo
from ingot.post.processes import Processes
from ingot.post.rl import async_sampler
from ingot.post.rl import stage as rl
from ingot.post.rl.async_config import AsynchronousConfig
from ingot.post.rl.config import RlConfig
from ingot.post.rl.objective import ImportanceConfig
from ingot.post.rl.source import RlSource
from ingot.post.samplers.local import LocalTransport, ProcessWorker
from ingot.post.samplers.task_stream import TaskStream
from ingot.recipe.load import load_recipe
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed, Interrupted
from ingot.workspace.files import read_jsonl
from ingot.workspace.stage import StageFolder
from tests.making.processes import alive, descendants, finds_processes, wait_until
from tests.making.stages import stage_folder
from tests.post.making import SUMS, checkpoint_of, drawn, samplers_of, tiny_model
from tests.post.rl.test_source import EvenLast
from tests.post.samplers.test_dispatcher import Played
from tests.train.parallel.ranks import run_ranks
from tests.train.parallel.test_launch import start

DEADLINE = 240.0  # a process imports torch first, on a machine that may be busy
PROMPTS, GROUP = 4, 4
WIDE = """
from ingot.envs.environment import Environment

class Numbers(Environment):
    "So many questions that none comes twice."

    def draw(self, rng):
        return self.ask(f"{rng.randrange(10**9)}?", "1", thinking=False)
"""


def make_config(**options: Any) -> RlConfig:
    usual: dict[str, Any] = {"steps": 8, "sequence_length": 64, "tasks": SUMS, "max_new_tokens": 4, "device": "cpu"}
    usual |= {"prompts_per_step": PROMPTS, "group": GROUP, "precision": "float32", "algorithm": EvenLast()}
    return RlConfig.model_validate(usual | {"asynchronous": {"staleness": 2}, "optimizer": {"lr": 1e-12}} | options)


def test_samples_of_any_age_have_the_ratio_one_while_nothing_is_learnt(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """With a learning rate of nearly 0 versions count on and weights stay: every token has the trainer's probability."""
    folder = make_folder("rl")
    rl.run(make_config(), {"checkpoint": checkpoint_of(tiny_model(tokenizer), tmp_path / "base")}, folder)
    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == list(range(8))
    for row in rows:
        assert row["ratio_mean"] == pytest.approx(1, abs=1e-4) and row["sampler_divergence"] < 1e-6
        assert row["correction_mean"] == pytest.approx(1, abs=1e-4), "importance sampling is on, and has nothing to do"
        assert 0 <= row["staleness"] <= row["staleness_max"] <= 2
        shares = {age: row[f"staleness/{age}"] for age in range(3)}
        assert sum(shares.values()) == pytest.approx(1)
        assert sum(age * share for age, share in shares.items()) == pytest.approx(row["staleness"])
        assert 0 <= row["learner_idle_share"] <= 1 and row["queue_length"] >= 0
        assert row["present_share"] <= shares[0] + 1e-6
    assert rows[0]["present_share"] == 1 and max(row["staleness"] for row in rows) > 0, "sampling went on meanwhile"
    told = [row for row in rows if "sampler_tokens_per_second" in row]
    assert all(0 <= row["sampler_idle_share"] <= 1 for row in told)
    assert max(row["sampler_tokens_per_second"] for row in told) > 0, "a beat may come before the first token"


def test_the_options() -> None:
    """Truncated importance sampling unless something else is said; what cannot be is refused."""
    assert make_config(algorithm="grpo").algorithm.model_dump()["importance"] == ImportanceConfig().model_dump()
    mask = {"algorithm": "cispo", "importance": {"mode": "mask", "low": 0.5, "high": 5.0}}
    assert make_config(algorithm=mask).algorithm.model_dump()["importance"]["mode"] == "mask"
    assert make_config(algorithm={"algorithm": "grpo", "importance": None}).algorithm.model_dump()["importance"] is None
    assert make_config(algorithm=Grpo(), asynchronous=None).algorithm.model_dump()["importance"] is None
    again = RlConfig.model_validate(make_config(algorithm="grpo").model_dump())
    assert again == make_config(algorithm="grpo")
    with pytest.raises(ValidationError, match=r"drawn during the 4 updates on the one before.*give at least 7"):
        make_config(mini_batches=4, asynchronous={"staleness": 6})
    assert make_config(mini_batches=4, asynchronous={"staleness": 7}).updates_per_batch == 4


def test_samplers_have_the_first_device_of_this_machine_that_the_learner_has_not(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner of four processes on two machines has two of the devices here."""

    class Four(Processes):
        size = 4

    def first_gpu() -> int:
        source = RlSource(tiny_model(tokenizer), make_config(), make_folder("rl"), Four())
        transport = samplers_of(source).transport
        assert isinstance(transport, LocalTransport)
        return transport.first_gpu

    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert first_gpu() == 4, "nobody says otherwise: one machine"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert first_gpu() == 2


def test_the_temperature_falls_while_samplers_go_on(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """A group has the temperature of the step that asked for it; where that is not the learner's no token counts as present."""
    model = tiny_model(tokenizer)
    options = {"temperature": 1.6, "temperature_end": 0.4, "steps": 5}
    source = RlSource(model, make_config(**options), make_folder("rl"))
    seen: set[float] = set()
    try:
        for step in range(5):
            present = [sum(each.streams["present"]) for each in source.update(step)[0]]
            now = 1.6 - 0.3 * step
            assert source.temperature == pytest.approx(now)
            for place, group in enumerate(samplers_of(source).taken):
                seen.add(round(group.temperature, 3))
                assert now - 1e-9 <= group.temperature <= now + 0.6 + 1e-9, "at most two steps old"
                if group.temperature != source.temperature:
                    assert not any(present[place * GROUP : (place + 1) * GROUP])
                for segment in (each.segments[0] for each in group.episodes):
                    tokens = torch.tensor(segment.tokens())
                    with torch.no_grad():
                        logits = model(tokens[None, :-1])[0] / group.temperature
                    exact = logits.log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]
                    drawn = torch.tensor(segment.sampled()[1:], dtype=torch.bool)
                    torch.testing.assert_close(
                        torch.tensor(segment.logprobs()[1:])[drawn], exact[drawn], atol=1e-4, rtol=0
                    )
            if step == 0:
                assert sum(present) > 0
    finally:
        source.close()
    assert len(seen) > 1


def test_where_samplers_are_is_no_part_of_the_work() -> None:
    """A run goes on with other samplers, on other machines, in the same folder; another bound is other work."""
    elsewhere = {"staleness": 2, "samplers": 7, "silence_seconds": 9.0, "transport": {"kind": "ray", "cpus": 2}}
    assert make_config(asynchronous=elsewhere).work() == make_config().work()
    assert make_config(asynchronous={"staleness": 3}).work() != make_config().work()
    assert make_config(asynchronous=None).work() != make_config().work()
    assert AsynchronousConfig.how <= AsynchronousConfig.model_fields.keys()


def test_a_ratio_is_asked_of_present_tokens_only(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    source = RlSource(tiny_model(tokenizer), make_config(), make_folder("rl"))
    drifted = {"ratio_mean": 1.3, "sampler_divergence": 0.2, "staleness": 0.8, "staleness/0": 0.5}
    right = {"present_share": 0.4, "present_ratio_mean": 0.4, "present_divergence": 0.0}
    assert source.check_ratio(3, drifted | right) == {"present_ratio_mean": 1.0, "present_divergence": 0.0}
    few = drifted | right | {"present_share": 0.01}
    assert source.check_ratio(3, few) == {} and "present_ratio_mean" not in few, "no mean of a few tokens is logged"
    later = {name: value for name, value in (drifted | right).items() if name != "staleness/0"}
    assert source.check_ratio(3, later | {"present_ratio_mean": 0.5}) == {}, "a later update on the batch"
    with pytest.raises(CheckFailed, match=r"their mean ratio is 1\.2500"):
        source.check_ratio(3, drifted | right | {"present_ratio_mean": 0.5})


def played_source(model: Transformer, config: RlConfig, folder: StageFolder, *others: Any) -> RlSource:
    """With samplers that the test plays."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(async_sampler, "make_transport", lambda *_: Played(1))
        return RlSource(model, config, folder, *others)


def test_a_stop_while_a_batch_is_taken_loses_nothing(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """Groups that were taken for a batch that never came are in the checkpoint, and come first after it."""
    folder = make_folder("rl")
    options: dict[str, Any] = {"group": 2, "exclude_solved": 1.0, "algorithm": Grpo()}
    source = played_source(tiny_model(tokenizer), make_config(**options), folder, Processes(None, folder.stop))
    sampler = samplers_of(source)
    transport = sampler.transport
    assert isinstance(transport, Played)
    sampler.dispatcher.dispatch()
    for _ in range(3):  # one fewer than a batch
        transport.finish(0, 0)
    folder.stop.request()
    with pytest.raises(Interrupted):
        drawn(source, 0)
    state = json.loads(json.dumps(source.state()))
    other = played_source(tiny_model(tokenizer), make_config(**options), make_folder("rl"))
    other.restore(state)
    dispatcher = samplers_of(other).dispatcher
    assert [group.number for group in dispatcher.finished] == [0, 1, 2]
    assert sorted(dispatcher.again) == list(range(3, 11)) and dispatcher.position == 11
    episodes = drawn(other, 0).episodes
    stream = dispatcher.stream
    assert [each.task.id for each in episodes] == [stream[number].id for number in range(4)]
    stored = [group["number"] for group in dispatcher.state()["finished"]]
    assert stored[:4] == [0, 1, 2, 3], "until they are stamped, too"
    dispatcher.commit()
    assert not {0, 1, 2, 3} & {group["number"] for group in dispatcher.state()["finished"]}


def test_new_weights_cancel_what_is_too_old_for_them(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """A sampler hangs in its groups while the learner goes on: they are cancelled with the update that makes them too old."""
    source = played_source(tiny_model(tokenizer), make_config(group=2, algorithm=Grpo()), make_folder("rl"))
    sampler = samplers_of(source)
    transport = sampler.transport
    assert isinstance(transport, Played)
    sampler.renew(0)
    sampler.dispatcher.dispatch()
    for step in (1, 2, 3):
        transport.beat(0)
        sampler.renew(step)
        assert len(transport.cancels) == (0 if step <= 2 else sampler.dispatcher.capacity)
    transport.read()
    batch = drawn(source, 3)
    episodes, metrics = batch.episodes, batch.metrics
    assert metrics["cancelled_groups"] == sampler.dispatcher.capacity and metrics["dropped_groups"] == 0
    assert {version for each in episodes for node in each.nodes for version in node.versions} == {3}
    stream = sampler.dispatcher.stream
    assert [each.task.id for each in episodes] == [stream[number].id for number in range(PROMPTS)]


def test_no_token_is_older_than_the_bound_at_the_last_update(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]
) -> None:
    """Samplers answer at once all that they are asked: what is taken second has waited in the queue for a whole batch."""
    options: dict[str, Any] = {"mini_batches": 2, "prompts_per_step": 2, "group": 2, "algorithm": Grpo()}
    config = make_config(**options, asynchronous={"staleness": 4})
    source = played_source(tiny_model(tokenizer), config, make_folder("rl"))
    sampler = samplers_of(source)
    transport = sampler.transport
    assert isinstance(transport, Played)
    rows = []
    for step in range(8):
        rows.append(source.update(step)[1])
        while transport.jobs[0]:
            transport.finish(0, 0)
    assert max(row["staleness_max"] for row in rows) == 3
    assert all(sum(row[f"staleness/{age}"] for age in range(5)) == 1 for row in rows)
    assert sum(row["dropped_groups"] for row in rows) == 0, "no more is asked than can be used"


def trained_tasks(folder: Path, steps: int) -> list[str]:
    """The id of every task that was trained on, by the record of all steps."""
    rows = read_jsonl(folder / "trajectories.jsonl")
    counts = Counter((row["step"], row["task_id"]) for row in rows)
    assert set(counts.values()) == {GROUP} and {step for step, _ in counts} == set(range(steps))
    return [task for _, task in counts]


def check_each_once(ids: list[str], stream: TaskStream, capacity: int) -> None:
    """No task twice; of the stream up to the last one only those are missing that may be under way."""
    numbers = {stream[number].id: number for number in range(len(ids) + capacity)}
    assert len(set(ids)) == len(ids) and set(ids) <= set(numbers)
    assert max(numbers[each] for each in ids) < len(ids) + capacity


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_sampler_that_dies_or_hangs_is_replaced(
    number: signal.Signals, tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """One of two samplers: its tasks come from others, each once, and the run goes on with both."""
    (tmp_path / "wide.py").write_text(WIDE, encoding="utf-8")
    options = {"staleness": 2, "samplers": 2, "silence_seconds": 5.0}
    tasks = {"weights": {f"{tmp_path / 'wide.py'}:Numbers": 1.0}}
    source = RlSource(
        tiny_model(tokenizer), make_config(asynchronous=options, tasks=tasks, record_every=1), make_folder("rl")
    )
    sampler = samplers_of(source)
    transport = sampler.transport
    assert isinstance(transport, LocalTransport)
    lost, step, deadline = 0.0, 0, time.monotonic() + DEADLINE
    try:
        while not transport.workers or not transport.workers[0].ready:  # one that starts has more time
            assert time.monotonic() < deadline
            source.update(step)
            step += 1
        victim = transport.workers[0]
        assert isinstance(victim, ProcessWorker) and victim.process.pid is not None
        os.kill(victim.process.pid, number)
        begun = step
        while step < begun + 5 or not lost or not transport.workers[0].ready:
            assert time.monotonic() < deadline
            lost += source.update(step)[1]["lost_samplers"]
            step += 1
        assert victim not in transport.workers and not victim.process.is_alive()
        assert lost == 1
    finally:
        source.close()
    stream = sampler.dispatcher.stream
    check_each_once(trained_tasks(source.folder.path, step), stream, sampler.dispatcher.capacity)


def run_rank(base: Path, path: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The stage in one of several learner processes, none of which may ask for a whole model."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a whole model in a learner's process")

    for name in ("whole", "renew"):
        setattr(Processes, name, refuse)
    return rl.run(make_config(**options), {"checkpoint": base}, stage_folder(path))


ASKING = {
    "canary": {"every": 3, "window": 3, "held_out": {"count": 3, "tasks": SUMS}},
    "difficulty": {"tried": {"samples": 2, "drawn": 4, "high": 1.0}},
}
SCORING = {
    "reference": {"algorithm": "grpo", "reference_weight": 0.1, "reference_every": 2},
    "critic": {"algorithm": "ppo", "ratio": "mean", "aggregation": "sequence"},
}


@pytest.mark.slow  # test_scorer.py and test_asynchronous_curriculum.py have its parts
@pytest.mark.parametrize(
    ("mesh", "algorithm"),
    [
        ({"shard": 2}, "reference"),
        ({"tensor": 2}, "critic"),
        ({"pipeline": 2}, "reference"),
        ({"context": 2}, "reference"),
    ],
    ids=str,
)
def test_a_learner_of_two_processes(mesh: dict[str, int], algorithm: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The model is divided, and whole nowhere but in the samplers, which also answer what is tried and held out.

    Scores and weights come from the divided model: ratios are 1, each task comes once.
    """
    (tmp_path / "wide.py").write_text(WIDE, encoding="utf-8")
    base = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    options: dict[str, Any] = {"tasks": {"weights": {f"{tmp_path / 'wide.py'}:Numbers": 1.0}}, "record_every": 1}
    options |= {"mesh": mesh, "algorithm": SCORING[algorithm], "checkpoints": {"every": 3}} | ASKING
    said = run_ranks(2, run_rank, tmp_path / "store", base, tmp_path / "rl", options)
    assert said[0] == said[1]
    folder = stage_folder(tmp_path / "rl")
    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == list(range(8))
    for row in rows:
        assert row["ratio_mean"] == pytest.approx(1, abs=1e-4) and row["staleness_max"] <= 2
        assert abs(row["start_divergence"]) < 1e-8
    assert [("canary" in row) for row in rows] == [step % 3 == 0 for step in range(8)]
    assert (folder.path / "pass_rates.jsonl").exists()
    stream = TaskStream(make_config(**options).tasks, 1, PROMPTS)
    check_each_once(trained_tasks(folder.path, 8), stream, 2 * PROMPTS)


@pytest.mark.slow
@finds_processes
def test_a_learner_that_is_killed_goes_on(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """`ingot run`, killed after a checkpoint: its sampler ends by itself; the next run trains on every task once."""
    (tmp_path / "wide.py").write_text(WIDE, encoding="utf-8")
    base = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    options: dict[str, Any] = {"inputs": {"checkpoint": str(base)}, "sequence_length": 64, "max_new_tokens": 4}
    options |= {"prompts_per_step": PROMPTS, "group": GROUP, "record_every": 1, "steps": 40, "device": "cpu"}
    options |= {"tasks": {"weights": {"wide.py:Numbers": 1.0}}, "precision": "float32"}
    options |= {"asynchronous": {"staleness": 2}, "checkpoints": {"every": 5}}
    recipe = {"name": "kill", "seed": 1, "stages": {"rl": options}}
    (tmp_path / "kill.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    command = ("ingot", "run", "kill.yaml", "--runs", "runs")
    process = start(tmp_path, *command)
    deadline = time.monotonic() + DEADLINE

    def rows() -> list[str]:
        return [
            line for path in tmp_path.glob("runs/kill/rl-*/metrics.jsonl") for line in path.read_text().splitlines()
        ]

    while len(rows()) < 13:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
    below = descendants(process.pid)
    assert below
    process.kill()
    process.communicate(timeout=DEADLINE)
    wait_until(lambda: not any(map(alive, below)), DEADLINE, "a sampler outlives its learner")
    process = start(tmp_path, *command)
    out, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, out + errors
    assert len(rows()) == 40
    (folder,) = tmp_path.glob("runs/kill/rl-*")
    (stage,) = load_recipe(tmp_path / "kill.yaml").stages
    assert isinstance(stage.config, RlConfig)
    check_each_once(trained_tasks(folder, 40), TaskStream(stage.config.tasks, stage.seed, PROMPTS), 2 * PROMPTS)
