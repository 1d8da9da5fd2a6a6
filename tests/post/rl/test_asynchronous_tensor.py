"""Asynchronous RL whose sampler is divided over two processes: learning, the checks of the loop, processes killed in mid-run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from ingot.post.policy import sequence_logprobs
from ingot.post.rl import stage as rl
from ingot.post.rl.async_config import AsynchronousConfig
from ingot.post.rl.async_sampler import AsyncSampler
from ingot.post.rl.pipeline import SampleBatch
from ingot.post.rl.source import RlSource
from ingot.post.samplers.dispatcher import Group
from ingot.post.samplers.local import LocalTransport, ProcessWorker
from ingot.post.samplers.task_stream import TaskStream
from ingot.tokens.batch import TokenSequence
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder
from tests.making.processes import alive, descendants, finds_processes, wait_until
from tests.post.making import checkpoint_of, samplers_of, tiny_model
from tests.post.rl.test_asynchronous import (
    DEADLINE,
    PROMPTS,
    WIDE,
    check_each_once,
    make_config,
    trained_tasks,
)

STEPS = 6
DIVIDED = {"staleness": 2, "tensor": 2, "silence_seconds": 5.0}


def options_in(folder: Path) -> dict[str, Any]:
    (folder / "wide.py").write_text(WIDE, encoding="utf-8")
    tasks = {"weights": {f"{folder / 'wide.py'}:Numbers": 1.0}}
    return {"asynchronous": DIVIDED, "tasks": tasks, "record_every": 1}


def test_it_learns_from_each_task_once_with_all_checks(
    tokenizer: Tokenizer,
    make_folder: Callable[[str], StageFolder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Weights move; what was sampled has the log-probabilities of full passes with the weights that it is stamped with."""
    states, groups = dict[int, dict[str, Tensor]](), list[Group]()
    renew, draw = AsyncSampler.renew, AsyncSampler.draw

    def kept_renew(sampler: AsyncSampler, step: int, *, begins: bool = True) -> None:
        states[step] = {name: value.clone() for name, value in sampler.model.state_dict().items()}
        renew(sampler, step, begins=begins)

    def kept_draw(sampler: AsyncSampler, batch: SampleBatch) -> None:
        draw(sampler, batch)
        groups.extend(sampler.taken)

    monkeypatch.setattr(AsyncSampler, "renew", kept_renew)
    monkeypatch.setattr(AsyncSampler, "draw", kept_draw)
    folder, model = make_folder("rl"), tiny_model(tokenizer)
    options = options_in(tmp_path) | {"optimizer": {"lr": 1e-2}, "steps": STEPS}
    rl.run(make_config(**options), {"checkpoint": checkpoint_of(model, tmp_path / "base")}, folder)
    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == list(range(STEPS))
    assert rows[0]["ratio_mean"] == pytest.approx(1, abs=1e-5) and rows[0]["sampler_divergence"] < 1e-6
    assert max(row["staleness_max"] for row in rows) <= 2 and sum(row["lost_samplers"] for row in rows) == 0
    stream = TaskStream(make_config(**options).tasks, folder.seed, PROMPTS)
    check_each_once(trained_tasks(folder.path, STEPS), stream, 2 * PROMPTS)
    compared = set[int]()
    for group in groups:
        model.load_state_dict(states[group.began])
        for segment in (each.segments[0] for each in group.episodes):
            first = [place for place, version in enumerate(segment.versions()) if version == group.began]
            (expected,) = sequence_logprobs(model, [TokenSequence(segment.tokens())], 64)
            found = [segment.logprobs()[place] for place in first]  # no key before them is of other weights
            assert found == pytest.approx([expected[place] for place in first], abs=1e-5)
            compared.update([group.began] if first else [])
    assert len(compared) > 2, "tokens of several versions"


def test_the_option(tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder]) -> None:
    """Where samplers are is no part of the work; what cannot be divided is refused before anything is started."""
    assert make_config(asynchronous=DIVIDED).work() == make_config().work()
    with pytest.raises(RecipeError, match=r"tensor \(3\) does not divide heads \(4\)"):
        RlSource(tiny_model(tokenizer), make_config(asynchronous={"tensor": 3}), make_folder("rl"))
    with pytest.raises(ValueError, match="a sampler over 2 devices asks for 2 GPUs, not 1"):
        AsynchronousConfig.model_validate({"tensor": 2, "transport": {"kind": "ray", "gpus": 1}})


@pytest.mark.slow
@finds_processes
def test_a_rank_that_dies_or_hangs_costs_no_task(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """Killed or stopped, it takes the sampler with it; another one is started, and every task comes once."""
    source = RlSource(tiny_model(tokenizer), make_config(**options_in(tmp_path)), make_folder("rl"))
    sampler = samplers_of(source)
    transport = sampler.transport
    assert isinstance(transport, LocalTransport)
    step, deadline, seen = 0, time.monotonic() + DEADLINE, set[int]()

    def update_until(done: Callable[[], bool]) -> float:
        nonlocal step
        lost = 0.0
        while not done():
            assert time.monotonic() < deadline
            lost += source.update(step)[1]["lost_samplers"]
            step += 1
        return lost

    def ready() -> bool:
        return bool(transport.workers) and transport.workers[0].taken >= 0

    try:
        update_until(ready)
        for rank, number in ((1, signal.SIGKILL), (0, signal.SIGKILL), (1, signal.SIGSTOP)):
            worker = transport.workers[0]
            assert isinstance(worker, ProcessWorker) and worker.process.pid is not None
            (follower,) = descendants(worker.process.pid)
            pids = [worker.process.pid, follower]
            os.kill(pids[rank], number)
            seen.update(pids)
            lost = update_until(lambda gone=worker: transport.workers[0] is not gone and ready())  # type: ignore[misc]
            assert lost == 1
            wait_until(lambda: not any(map(alive, pids)), DEADLINE, "a rank outlives its sampler")  # noqa: B023
        worker = transport.workers[0]
        assert isinstance(worker, ProcessWorker) and worker.process.pid is not None
        (follower,) = descendants(worker.process.pid)
        last = step
        update_until(lambda: step >= last + 3)
    finally:
        source.close()
    assert len(seen) == 6 and not alive(follower)
    check_each_once(trained_tasks(source.folder.path, step), sampler.dispatcher.stream, sampler.dispatcher.capacity)
