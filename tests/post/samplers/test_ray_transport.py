"""Samplers as Ray actors: weights, jobs, an actor that is killed or hangs, a cluster without room."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot.envs.config import TaskMixConfig
from ingot.post.samplers.messages import Cancel, Event, Finished, Job, Lost, NewWeights
from ingot.post.samplers.ray_actor import Mail
from ingot.post.samplers.ray_transport import ActorWorker, RayTransport
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed
from tests.making.processes import alive, descendants, wait_until
from tests.post.making import nudged, tiny_model
from tests.post.samplers.test_shipment import OWN
from tests.post.samplers.test_worker import make_config
from tests.ray_cluster import ray_cluster

ray = pytest.importorskip("ray")

DEADLINE = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(cpus=2) as made:
        yield made


def stored_objects() -> int:
    """How many objects are in the cluster's object store."""
    from ray._private.internal_api import memory_summary

    found = re.search(r"(\d+) objects", memory_summary(stats_only=True))
    return int(found[1]) if found else 0


def wait_for(transport: RayTransport, kind: type[Any], count: int = 1) -> list[tuple[int, Any]]:
    """The next events of a kind."""
    found: list[tuple[int, Event]] = []
    deadline = time.monotonic() + DEADLINE
    while len(found) < count:
        assert time.monotonic() < deadline, f"no {kind.__name__}"
        found += [(sampler, event) for sampler, event in transport.receive(0.2) if isinstance(event, kind)]
    return found


@pytest.mark.slow  # Ray takes half a minute of processor time to start; curation through Ray is in make test
def test_weights_jobs_cancellations_and_a_killed_actor(tokenizer: Tokenizer, tmp_path: Path, cluster: Any) -> None:
    """The environment's file is gone before the actor starts: it came with it. Tokens carry the version that drew them."""
    file = tmp_path / "own.py"
    file.write_text(OWN, encoding="utf-8")
    tasks = TaskMixConfig.model_validate({"weights": {f"{file}:Zebra": 1.0}})
    model = tiny_model(tokenizer)
    transport = RayTransport(make_config(tokenizer, tasks=tasks), 1, 60.0, cluster.address, cpus=1, gpus=0.0)
    file.unlink()
    at_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        transport.send_weights(model.state_dict().items(), 3)
        assert signal.getsignal(signal.SIGTERM) is at_sigterm, "a run that is stopped saves first"
        transport.send(0, Job(0, 4))
        ((_, finished),) = wait_for(transport, Finished)
        assert (finished.number, finished.began) == (0, 3)
        transport.send_weights(nudged(model, 0.05, seed=1).state_dict().items(), 4)
        transport.send(0, Cancel(0))  # it has ended, so that this means nothing
        transport.send(0, Job(1, 4))
        ((_, finished),) = wait_for(transport, Finished)
        versions = {each for one in finished.episodes for node in one["segments"][0] for each in node["versions"]}
        assert (finished.number, finished.began, versions) == (1, 4, {4}), "the checksum of version 4 was compared"

        for version in range(5, 9):
            transport.send_weights(model.state_dict().items(), version)
        (victim,) = transport.workers
        assert isinstance(victim, ActorWorker)
        deadline = time.monotonic() + DEADLINE
        while victim.taken < 8 or stored_objects() > 3:  # the newest weights, the sampler's config, the user's files
            assert time.monotonic() < deadline, "old versions stay in the object store"
            transport.receive(0.1)

        transport.send(0, Job(2, 80))
        ray.kill(victim.actor)
        ((_, lost),) = wait_for(transport, Lost)
        assert "ActorDiedError" in lost.reason and victim not in transport.workers
        transport.send(0, Job(2, 4))
        ((_, finished),) = wait_for(transport, Finished)
        assert (finished.number, finished.began) == (2, 8), "the new one has the newest weights"
    finally:
        transport.close()
    assert not transport.workers and not ray.is_initialized()


LEARNER = """
import os, sys, time
import ray
from ingot.post.samplers.messages import Finished, Job
from ingot.post.samplers.ray_transport import RayTransport
from tests.post.making import tiny_model, tiny_tokenizer
from tests.post.samplers.test_shipment import OWN
from tests.post.samplers.test_worker import make_config

tokenizer = tiny_tokenizer()
transport = RayTransport(make_config(tokenizer), 1, 60.0, sys.argv[1], cpus=1, gpus=0.0)
transport.send_weights(tiny_model(tokenizer).state_dict().items(), 0)
while not transport.workers[0].ready:
    transport.receive(0.2)
print(ray.get(transport.workers[0].actor.__ray_call__.remote(lambda self: os.getpid())), flush=True)
while True:
    transport.receive(1.0)
"""


@pytest.mark.slow
def test_actors_end_with_a_learner_that_is_killed(cluster: Any) -> None:
    command = [sys.executable, "-c", LEARNER, cluster.address]
    learner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert learner.stdout is not None
    actor = int(learner.stdout.readline())
    assert Path(f"/proc/{actor}").exists()
    learner.kill()
    learner.communicate(timeout=DEADLINE)
    wait_until(lambda: not alive(actor), DEADLINE, "a sampler outlives its learner")


@pytest.mark.slow
def test_an_actor_that_hangs_is_replaced(tokenizer: Tokenizer, cluster: Any) -> None:
    transport = RayTransport(make_config(tokenizer), 1, 15.0, cluster.address, cpus=1, gpus=0.0)
    try:
        transport.send_weights(tiny_model(tokenizer).state_dict().items(), 0)
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


@pytest.mark.slow
def test_no_node_takes_a_sampler(tokenizer: Tokenizer, cluster: Any) -> None:
    """It asks for more processors than any node has."""
    transport = RayTransport(make_config(tokenizer), 1, 0.5, cluster.address, cpus=3, gpus=0.0)
    try:
        transport.send_weights(tiny_model(tokenizer).state_dict().items(), 0)
        with pytest.raises(CheckFailed, match=r"no node .* took a sampler within 0\.5 seconds: it asks for num_cpus 3"):
            wait_for(transport, Lost)
    finally:
        transport.close()


def test_new_weights_take_the_place_of_unread_ones() -> None:
    """Jobs behind them do not overtake them."""
    mail: Mail[Any] = Mail()
    for message in (NewWeights(1, "a", 0), Job(0, 4), NewWeights(2, "b", 0), Cancel(0)):
        mail.put(message)
    assert mail.wait(0.0)
    assert mail.take() == NewWeights(2, "b", 0)
    assert mail.take_all() == [Job(0, 4), Cancel(0)] and not mail.wait(0.0)


@pytest.mark.slow
def test_an_actor_over_two_processes(tokenizer: Tokenizer, cluster: Any) -> None:
    """Its second process is a child of the actor's. One that dies takes the other with it, and another actor plays on."""
    model = tiny_model(tokenizer)
    config = make_config(tokenizer, devices=("cpu", "cpu"))
    transport = RayTransport(config, 1, 60.0, cluster.address, cpus=2, gpus=0.0)
    try:
        transport.send_weights(model.state_dict().items(), 3)
        for number, killed in enumerate((1, 0)):
            transport.send(0, Job(number, 4))
            ((_, finished),) = wait_for(transport, Finished)
            assert (finished.number, finished.began) == (number, 3)
            (worker,) = transport.workers
            assert isinstance(worker, ActorWorker)
            leader = ray.get(worker.actor.__ray_call__.remote(lambda self: os.getpid()))
            (follower,) = descendants(leader)
            os.kill((leader, follower)[killed], signal.SIGKILL)
            wait_for(transport, Lost)
            pids = (leader, follower)
            wait_until(lambda: not any(map(alive, pids)), DEADLINE, "a process outlives its sampler")  # noqa: B023
    finally:
        transport.close()
