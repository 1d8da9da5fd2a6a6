"""Samplers as Ray actors: weights, jobs, cancellations, an actor that is killed or hangs, a node that nobody has; files that travel."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.data.engine.ray_cluster import connect, describe
from ingot.envs.config import TaskMixConfig
from ingot.post.samplers.messages import Cancel, Cancelled, Event, Finished, Job, Lost, NewWeights, Taken
from ingot.post.samplers.ray_actor import Mail
from ingot.post.samplers.ray_transport import ActorWorker, RayTransport
from ingot.post.samplers.shipment import Shipment
from ingot.post.samplers.task_stream import TaskStream
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed, RecipeError
from tests.post.making import nudged, tiny_model
from tests.post.samplers.ray_cluster import ray_cluster
from tests.post.samplers.test_worker import make_config

ray = pytest.importorskip("ray")

DEADLINE = 120.0
OWN = """
from ingot.envs.environment import Environment

class Zebra(Environment):
    "Questions of a file outside the package."

    most: int = 9

    def draw(self, rng):
        return self.ask(f"{rng.randrange(self.most)}?", "1", thinking=False)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(1, cpus=2) as made:
        yield made


def wait_for(transport: RayTransport, kind: type[Any], count: int = 1) -> list[tuple[int, Any]]:
    """The next events of a kind."""
    found: list[tuple[int, Event]] = []
    deadline = time.monotonic() + DEADLINE
    while len(found) < count:
        assert time.monotonic() < deadline, f"no {kind.__name__}"
        found += [(sampler, event) for sampler, event in transport.receive(0.2) if isinstance(event, kind)]
    return found


def test_weights_jobs_and_a_killed_actor(tokenizer: Tokenizer, tmp_path: Path, cluster: Any) -> None:
    """The environment's file is gone before the actors start: it came with them. Tokens carry the version that drew them."""
    file = tmp_path / "own.py"
    file.write_text(OWN, encoding="utf-8")
    tasks = TaskMixConfig.model_validate({"weights": {f"{file}:Zebra": 1.0}})
    model = tiny_model(tokenizer)
    config = make_config(tokenizer, tasks=tasks)
    transport = RayTransport(config, 2, 60.0, cluster.address, cpus=1, gpus=0.0)
    file.unlink()
    try:
        transport.send_weights(model.state_dict(), 3)
        for sampler in range(2):
            transport.send(sampler, Job(sampler, 4))
        done = {number: event for number, event in wait_for(transport, Finished, 2)}
        assert {event.number: event.began for event in done.values()} == {0: 3, 1: 3}
        transport.send_weights(nudged(model, 0.05, seed=1).state_dict(), 4)
        assert transport.newest is not None
        deadline = time.monotonic() + DEADLINE
        while any(worker.taken < 4 for worker in transport.workers):  # which a checksum has been compared for
            assert time.monotonic() < deadline
            transport.receive(0.2)
        transport.send(0, Job(2, 4))
        ((_, finished),) = wait_for(transport, Finished)
        versions = {each for one in finished.episodes for node in one["segments"][0] for each in node["versions"]}
        assert versions == {4}

        victim = transport.workers[1]
        assert isinstance(victim, ActorWorker)
        transport.send(1, Job(3, 80))
        ray.kill(victim.actor)
        ((lost, event),) = wait_for(transport, Lost)
        assert lost == 1 and "ActorDiedError" in event.reason
        assert transport.workers[1] is not victim
        transport.send(1, Job(3, 4))
        ((sampler, finished),) = wait_for(transport, Finished)
        assert (sampler, finished.number, finished.began) == (1, 3, 4), "the new one has the newest weights"
    finally:
        transport.close()
    assert not transport.workers and not ray.is_initialized()


@pytest.mark.slow
def test_an_actor_that_hangs_is_replaced(tokenizer: Tokenizer, cluster: Any) -> None:
    transport = RayTransport(make_config(tokenizer), 1, 15.0, cluster.address, cpus=1, gpus=0.0)
    try:
        transport.send_weights(tiny_model(tokenizer).state_dict(), 0)
        transport.send(0, Job(0, 4))
        wait_for(transport, Finished)
        (victim,) = transport.workers
        assert isinstance(victim, ActorWorker)
        pid = ray.get(victim.actor.__ray_call__.remote(lambda self: os.getpid()))
        os.kill(pid, signal.SIGSTOP)
        ((_, event),) = wait_for(transport, Lost)
        assert "silent for 15 seconds" in event.reason
        transport.send(0, Job(1, 4))
        assert wait_for(transport, Finished)[0][1].number == 1
    finally:
        transport.close()


def test_no_node_takes_a_sampler(tokenizer: Tokenizer, cluster: Any) -> None:
    """It asks for more processors than any node has."""
    transport = RayTransport(make_config(tokenizer), 1, 0.5, cluster.address, cpus=3, gpus=0.0)
    try:
        transport.send_weights(tiny_model(tokenizer).state_dict(), 0)
        with pytest.raises(CheckFailed, match=r"no node .* took a sampler within 0\.5 seconds: it asks for num_cpus 3"):
            wait_for(transport, Lost)
    finally:
        transport.close()
