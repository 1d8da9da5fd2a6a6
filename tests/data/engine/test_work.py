"""Tasks: the same results from every pool, nothing computed twice, nothing lost when a process dies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.data.engine.local_pool import LocalPool
from ingot.data.engine.pool import SerialPool, WorkPool
from ingot.data.engine.store import REPORT, commit, finished
from ingot.data.engine.work import ATTEMPTS, Work, WorkPhase
from ingot.workspace.errors import DataError, Interrupted
from ingot.workspace.interrupt import StopSignal
from tests.making.stages import Listener

from .tasks import Text, always_die, bad_data, bug, die_once, sleep, upper

ITEMS = [Text(f"item{number}", "word " * number) for number in range(7)]


def local() -> WorkPool:
    return LocalPool(2)


@pytest.mark.usefixtures("spawning")
@pytest.mark.parametrize("make_pool", [SerialPool, local])
def test_results_come_in_the_order_of_the_items(tmp_path: Path, make_pool: Callable[[], WorkPool]) -> None:
    with make_pool() as pool:
        done = Work(tmp_path, pool=pool).run("upper", upper, ITEMS, {"suffix": "!"})
    assert [task.file("out.txt").read_text() for task in done] == [item.text.upper() + "!" for item in ITEMS]
    assert [task.report["length"] for task in done] == [len(item.text) for item in ITEMS]
    here = {task.report["process"] for task in done} == {os.getpid()}
    assert here == (make_pool is SerialPool)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    first, second = Work(tmp_path), Work(tmp_path)
    before = first.run("upper", upper, ITEMS[:5])
    after = second.run("upper", upper, ITEMS)
    assert (first.tasks_run, second.tasks_run) == (5, 2)
    assert after[:5] == before
    assert second.seconds >= sum(task.seconds for task in before)


@pytest.mark.parametrize("change", ["options", "version", "name", "function", "item"])
def test_a_key_is_made_of_everything_that_matters(tmp_path: Path, change: str) -> None:
    work = Work(tmp_path)
    item = [Text("a", "text")]
    work.run("upper", upper, item)
    match change:
        case "options":
            work.run("upper", upper, item, {"suffix": "?"})
        case "version":
            work.run("upper", upper, item, version=2)
        case "name":
            work.run("other", upper, item)
        case "function":
            work.run("upper", die_once, item, {"marks": str(tmp_path)})
        case "item":
            work.run("upper", upper, [Text("b", "text")])
    assert work.tasks_run == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "report"])
def test_a_damaged_result_is_computed_again_aloud(tmp_path: Path, damage: str, recorder: Listener) -> None:
    [task] = Work(tmp_path).run("upper", upper, [Text("a", "text")])
    path = task.file("out.txt")
    match damage:
        case "cut":
            path.write_text("TEX")
        case "changed":
            path.write_text("TEXt")
        case "missing":
            path.unlink()
        case "report":
            task.file(REPORT).write_text('{"files": ')
    work = Work(tmp_path, recorder, check_contents=damage == "changed")
    [again] = work.run("upper", upper, [Text("a", "text")])
    assert again.file("out.txt").read_text() == "TEXT"
    assert work.tasks_run == 1
    assert recorder.lines == [f"damaged, computed again: {task.folder}"]


def test_a_task_whose_process_is_killed_is_run_again(tmp_path: Path, recorder: Listener) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    items = [Text("a", "one"), Text("b", "deadly"), Text("c", "three"), Text("d", "deadly")]
    with LocalPool(2) as pool:
        done = Work(tmp_path / "work", recorder, pool=pool).run("die", die_once, items, {"marks": str(marks)})
    assert [task.file("out.txt").read_text() for task in done] == ["ONE", "DEADLY", "THREE", "DEADLY"]
    told = [line for line in recorder.lines if "was killed by signal 9; trying again (1 of 3)" in line]
    assert len(told) == 2
    Work(tmp_path / "work")
    assert not list((tmp_path / "work").rglob("*.partial"))  # the halves are swept away


def test_a_task_that_always_kills_is_named(tmp_path: Path) -> None:
    with LocalPool(2) as pool, pytest.raises(DataError, match=rf"die b: the worker was killed.*{ATTEMPTS} times"):
        Work(tmp_path, pool=pool).run("die", always_die, [Text("a", "x"), Text("b", "deadly")])


@pytest.mark.parametrize("make_pool", [SerialPool, local])
def test_errors_come_through(tmp_path: Path, make_pool: Callable[[], WorkPool]) -> None:
    with make_pool() as pool:
        with pytest.raises(DataError, match=r"item[01]: the text is bad\n  fix: write a better one"):
            Work(tmp_path, pool=pool).run("bad", bad_data, ITEMS[:2])
        with pytest.raises(ZeroDivisionError) as caught:
            Work(tmp_path, pool=pool).run("bug", bug, ITEMS[:2])
        assert "1 // len(item.text[:0])" in str(caught.value.__cause__)  # where it happened, also in another process
        done = Work(tmp_path, pool=pool).run("upper", upper, ITEMS[:2])  # the pool is good for more
    assert len(done) == 2


def test_no_progress_has_a_deadline(tmp_path: Path) -> None:
    began = time.monotonic()
    with LocalPool(2) as pool, pytest.raises(DataError, match=r"sleep item0, sleep item1: no task was finished in 1 s"):
        Work(tmp_path, pool=pool, stall_seconds=1).run("sleep", sleep, ITEMS[:2])
    assert time.monotonic() - began < 20


def test_a_stop_ends_what_is_under_way(tmp_path: Path) -> None:
    stop = StopSignal()

    class Asks(Listener):
        def start(self, total: int, unit: str = "step", done: int = 0) -> None:
            stop.request()

    with LocalPool(2) as pool:
        began = time.monotonic()
        with pytest.raises(Interrupted):
            Work(tmp_path, Asks(), stop, pool).run("sleep", sleep, ITEMS[:2])
        assert time.monotonic() - began < 20
        assert isinstance(pool, LocalPool)
        assert pool.workers == []


def test_small_work_stays_here(tmp_path: Path) -> None:
    small = [Text(item.key, item.text, 1000) for item in ITEMS]
    with LocalPool(2) as pool:
        done = Work(tmp_path, pool=pool).run("upper", upper, small)
        assert {task.report["process"] for task in done} == {os.getpid()}
        assert isinstance(pool, LocalPool)
        assert pool.workers == []


def test_processes_start_when_work_is_expected_and_then_take_single_tasks(tmp_path: Path) -> None:
    pool = LocalPool(2)
    with pool:
        work = Work(tmp_path, pool=pool)
        work.expect(1000)
        [here] = work.run("upper", upper, ITEMS[:1])
        assert here.report["process"] == os.getpid()
        assert len(pool.workers) == 0
        work.expect(10_000_000)
        assert len(pool.workers) == 2
        [there] = work.run("upper", upper, ITEMS[1:2])
        assert there.report["process"] in {worker.process.pid for worker in pool.workers}


@pytest.mark.parametrize("make_pool", [SerialPool, local])
def test_phases_at_the_same_time_are_the_phases_by_themselves(
    tmp_path: Path, make_pool: Callable[[], WorkPool]
) -> None:
    with make_pool() as pool:
        work = Work(tmp_path, pool=pool)
        loud = WorkPhase("loud", upper, ITEMS[:3], {"suffix": "!"}, version=2)
        together = work.run_all([WorkPhase("upper", upper, ITEMS[2:5]), loud, WorkPhase("nothing", upper, [])])
        assert [[task.file("out.txt").read_text() for task in done] for done in together] == [
            [item.text.upper() for item in ITEMS[2:5]],
            [item.text.upper() + "!" for item in ITEMS[:3]],
            [],
        ]
        assert work.run("upper", upper, ITEMS[2:5]) == together[0]
        assert work.run("loud", upper, ITEMS[:3], {"suffix": "!"}, version=2) == together[1]
        assert work.tasks_run == 6


def test_two_that_finish_the_same_task_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "name" / "key"
    with commit(target) as slow:
        (slow.folder / "out.txt").write_text("same")
        with commit(target) as fast:
            (fast.folder / "out.txt").write_text("same")
            fast.report = {"n": 1}
    done = finished(target, contents=True)
    assert done is not None
    assert done.report == {"n": 1}
    assert not list(tmp_path.rglob("*.partial"))


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), commit(tmp_path / "name" / "key") as made:
        (made.folder / "out.txt").write_text("half")
        raise RuntimeError
    assert list((tmp_path / "name").iterdir()) == []
