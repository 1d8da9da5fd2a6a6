"""The asynchronous stage on two Ray nodes: it learns, has a learner of two processes, and loses a node in mid-run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot.data.engine.ray_cluster import connect
from ingot.post.rl import stage as rl
from ingot.post.rl.source import RlSource
from ingot.post.samplers import ray_transport
from ingot.post.samplers.ray_transport import ActorWorker, RayTransport
from ingot.post.samplers.task_stream import TaskStream
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.stage import StageFolder
from tests.making.stages import stage_folder
from tests.post.making import checkpoint_of, samplers_of, tiny_model
from tests.post.rl.test_asynchronous import PROMPTS, WIDE, check_each_once, make_config, run_rank, trained_tasks
from tests.post.rl.test_asynchronous_learning import Even
from tests.ray_cluster import ray_cluster
from tests.train.parallel.ranks import run_ranks

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow

DEADLINE = 240.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Either node has room for both samplers."""
    with ray_cluster(cpus=2, nodes=2) as made:
        yield made


def on_ray(cluster: Any, **options: Any) -> dict[str, Any]:
    return {"staleness": 2, "samplers": 2, "transport": {"kind": "ray", "address": cluster.address}, **options}


def nodes_of(transport: RayTransport) -> list[str]:
    """Where each sampler is."""
    workers = [worker for worker in transport.workers if isinstance(worker, ActorWorker)]
    return [ray.get(each.actor.__ray_call__.remote(_node)) for each in workers]


def _node(actor: Any) -> str:
    import ray as here

    return str(here.get_runtime_context().get_node_id())


def test_a_policy_learns_a_bandit(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path, cluster: Any
) -> None:
    """The same settings and the same gain as with samplers of this machine; ratios of present tokens are checked on the way."""
    earned: list[float] = []

    class Counted(Even):
        def reward(self, episode: Any) -> float:
            earned.append(super().reward(episode))
            return earned[-1]

    options: dict[str, Any] = {"steps": 16, "group": 8, "max_new_tokens": 1, "asynchronous": on_ray(cluster)}
    options |= {"algorithm": Counted(), "optimizer": {"lr": 1e-2, "weight_decay": 0.0}}
    folder = make_folder("rl")
    base = checkpoint_of(tiny_model(tokenizer, std=0.05), tmp_path / "base")
    rl.run(make_config(**options), {"checkpoint": base}, folder)
    fifth = len(earned) // 5
    before, after = sum(earned[:fifth]) / fifth, sum(earned[-fifth:]) / fifth
    assert before < 0.7 and after > before + 0.2, (before, after)
    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == list(range(16))
    assert 0 < max(row["staleness_max"] for row in rows) <= 2
    assert not ray.is_initialized(), "the stage has ended its connection"


def run_counted(base: Path, path: Path, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The stage in one of several learner processes, and how often that connected to Ray."""
    calls = []

    def counted(address: str) -> tuple[Any, bool]:
        calls.append(address)
        return connect(address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_transport, "connect", counted)
        return run_rank(base, path, options), len(calls)


def test_a_learner_of_two_processes(tokenizer: Tokenizer, tmp_path: Path, cluster: Any) -> None:
    """The first process alone connects and has the samplers; both train on their share of the same groups."""
    (tmp_path / "wide.py").write_text(WIDE, encoding="utf-8")
    base = checkpoint_of(tiny_model(tokenizer), tmp_path / "base")
    options: dict[str, Any] = {"tasks": {"weights": {f"{tmp_path / 'wide.py'}:Numbers": 1.0}}, "record_every": 1}
    options |= {"mesh": {"shard": 2}, "algorithm": "grpo", "asynchronous": on_ray(cluster, samplers=1)}
    (first, connected), (second, none) = run_ranks(2, run_counted, tmp_path / "store", base, tmp_path / "rl", options)
    assert first == second and (connected, none) == (1, 0)
    folder = stage_folder(tmp_path / "rl")
    rows = folder.metrics.read()
    assert [row["step"] for row in rows] == list(range(8))
    assert all(row["ratio_mean"] == pytest.approx(1, abs=1e-4) and row["staleness_max"] <= 2 for row in rows)
    stream = TaskStream(make_config(**options).tasks, 1, PROMPTS)
    check_each_once(trained_tasks(folder.path, 8), stream, 2 * PROMPTS)


def test_a_node_is_lost_in_mid_run(
    tokenizer: Tokenizer, make_folder: Callable[[str], StageFolder], tmp_path: Path, cluster: Any
) -> None:
    """Its sampler's groups come from others, each once; the sampler is started anew on the node that is left."""
    (tmp_path / "wide.py").write_text(WIDE, encoding="utf-8")
    tasks = {"weights": {f"{tmp_path / 'wide.py'}:Numbers": 1.0}}
    config = make_config(asynchronous=on_ray(cluster, silence_seconds=60.0), tasks=tasks, record_every=1)
    source = RlSource(tiny_model(tokenizer), config, make_folder("rl"))
    sampler = samplers_of(source)
    transport = sampler.transport
    assert isinstance(transport, RayTransport)
    lost, step, deadline = 0.0, 0, time.monotonic() + DEADLINE
    try:
        while not transport.workers or not all(worker.ready for worker in transport.workers):
            assert time.monotonic() < deadline
            source.update(step)
            step += 1
        first, second = nodes_of(transport)
        assert first != second, "samplers are spread over the nodes"
        victims = list(transport.workers)
        (node,) = (each for each in cluster.worker_nodes if each.node_id == first)
        cluster.remove_node(node, allow_graceful=False)
        begun = step
        while step < begun + 5 or not lost or not all(worker.ready for worker in transport.workers):
            assert time.monotonic() < deadline, (lost, step)
            lost += source.update(step)[1]["lost_samplers"]
            step += 1
        assert lost >= 1, "Ray may place the new one on the dead node until it has noticed"
        assert transport.workers[0] is not victims[0] and transport.workers[1] is victims[1]
        assert nodes_of(transport) == [second, second]
    finally:
        source.close()
    check_each_once(trained_tasks(source.folder.path, step), sampler.dispatcher.stream, sampler.dispatcher.capacity)
