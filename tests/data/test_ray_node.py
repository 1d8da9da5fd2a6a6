"""A Ray cluster that loses a node in the middle of a curation: the same bytes as this machine's own engine gives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from tests.making.stages import Listener
from tests.ray_cluster import ray_cluster

from .dirty import write_rows
from .test_curate import results, stage_at

pytest.importorskip("ray")

DEADLINE_SECONDS = 120.0


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that plans but does not work, as large clusters have it; nodes are processes of this machine."""
    with ray_cluster(cpus=0) as made:
        yield made


def titles(pid: int) -> list[str]:
    """The names of a process's children; Ray's workers bear the name of the function that they carry out."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            found.append(Path(f"/proc/{child}/cmdline").read_text().split("\0")[0].strip())
        except OSError:
            continue  # it has just ended
    return found


def lose(cluster: Any, node: Any, lost: threading.Event) -> None:
    """Kill the node as soon as it works at something, as a power cut would."""
    [raylet] = node.all_processes["raylet"]
    deadline = time.monotonic() + DEADLINE_SECONDS
    while "ray::answer" not in titles(raylet.process.pid):
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    cluster.remove_node(node, allow_graceful=False)
    lost.set()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds Ray's workers in /proc")
def test_a_lost_node_changes_no_byte(tmp_path: Path, cluster: Any, recorder: Listener) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    for number in range(4):
        write_rows(rows / f"rows-{number}.jsonl", 1, seed=number)
    config = CurateConfig.model_validate(
        {
            "sources": [{"files": f"{rows}/*.jsonl"}],
            "steps": [{"step": "exact_dedup"}, {"step": "gopher_quality"}, {"step": "near_dedup"}],
            "workers": 1,
        }
    )
    here = stage_at(tmp_path / "here" / "stage")
    run_stage(config, {}, here)

    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    lost = threading.Event()
    killer = threading.Thread(target=lose, args=(cluster, nodes[1], lost))
    killer.start()
    far = stage_at(tmp_path / "ray" / "stage", recorder)
    run_stage(config.model_copy(update={"engine": "ray", "workers": 2, "ray_address": cluster.address}), {}, far)
    killer.join(DEADLINE_SECONDS)
    assert lost.is_set(), "the node never worked"
    assert any("NodeDiedError" in line and "trying again" in line for line in recorder.lines), recorder.lines
    assert results(far) == results(here)
