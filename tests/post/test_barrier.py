"""Work that three processes share at their own pace: results in order, and a failure or a stop that all hear of at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from ingot.post import barrier
from ingot.post.barrier import Between
from ingot.post.processes import Processes
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.layout import make_layout
from ingot.workspace.errors import CheckFailed, IngotError, Interrupted
from ingot.workspace.interrupt import StopSignal
from tests.train.parallel.ranks import run_ranks


def tens(count: int, rank: int, run: slice, between: Between) -> list[int]:
    """Processes need one, two and three steps for an item."""
    made = []
    for each in range(count)[run]:
        for _ in range(rank + 1):
            between()
        made.append(10 * each)
    return made


def without_end(rank: int, run: slice, between: Between, at: int, act: Callable[[], None]) -> list[int]:
    """Work that only a barrier can end; the process `at` acts in its third step."""
    for step in count():
        between()
        if step == 2 and rank == at:
            act()
    return []


def work_in_three() -> tuple[list[list[int]], int, str, str]:
    """What three processes make of 0, 1, 2 and 7 items, and how often each says that it is alive.

    Then what each hears when one of them fails, or is asked to stop.
    """
    stop, signs = StopSignal(), list[None]()
    processes = Processes(make_layout(MeshConfig(), torch.device("cpu")), stop, partial(signs.append, None))
    rank = processes.ranks.rank
    shared = []
    for seconds in (0.0, 5.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(barrier, "BARRIER_SECONDS", seconds)
            shared += [processes.share(number, partial(tens, number, rank)) for number in (0, 1, 2, 7)]
    assert processes.once(lambda: rank) == 0
    alive = len(signs)

    def fail() -> None:
        raise CheckFailed("the logits are not finite", place="here")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(IngotError) as caught:
        patch.setattr(barrier, "BARRIER_SECONDS", 0.0)
        processes.share(7, partial(without_end, rank, at=2, act=fail))
    shared.append(processes.share(7, partial(tens, 7, rank)))  # their barriers are in step again
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(barrier, "BARRIER_SECONDS", 0.01)
        processes.share(7, partial(without_end, rank, at=1, act=stop.request))
    return shared, alive, type(caught.value).__name__, str(caught.value)


def test_processes_share_their_work_their_failures_and_a_stop(tmp_path: Path) -> None:
    expected = [[], [0], [0, 10], [0, 10, 20, 30, 40, 50, 60]]
    found = run_ranks(3, work_in_three, tmp_path / "store")
    assert [shared for shared, *_ in found] == [[*expected, *expected, expected[-1]]] * 3
    assert all(alive >= 9 for _, alive, *_ in found), "also the first, which waits for the nine steps of the last"
    assert found[2][2] == "CheckFailed"
    assert all("rank 2 failed: CheckFailed: here: the logits are not finite" in told for *_, told in found[:2])


def test_one_process_hears_a_stop_between_two_steps() -> None:
    stop, steps = StopSignal(), list[int]()

    def work(run: slice, between: Between) -> list[int]:
        for step in range(7)[run]:
            between()
            steps.append(step)
            if step == 2:
                stop.request()
        return steps

    with pytest.raises(Interrupted):
        Processes(stop=stop).share(7, work)
    assert steps == [0, 1, 2]
    assert Processes().share(7, partial(tens, 7, 0)) == [0, 10, 20, 30, 40, 50, 60]
