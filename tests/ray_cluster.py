"""Ray clusters for tests: nodes are processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def ray_cluster(cpus: int, nodes: int = 0) -> Iterator[Any]:
    """A head with so many processors; or one that plans but does not work, as large clusters have it, and nodes that do."""
    import ray
    from ray.cluster_utils import Cluster

    # Ray's workers are at niceness 15 by default: beside the other test processes an actor did not start within two minutes.
    os.environ.setdefault("RAY_worker_niceness", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0 if nodes else cpus, "include_dashboard": False})
    try:
        for _ in range(nodes):
            made.add_node(num_cpus=cpus)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
