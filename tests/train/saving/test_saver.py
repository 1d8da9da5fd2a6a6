"""Checkpoints written in the background: exact, complete or absent, and never a lost error."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save as torch_save

from ingot.checkpoints import checkpoint
from ingot.checkpoints.checkpoint import load_model, verify_checkpoint
from ingot.checkpoints.state_files import save_state
from ingot.train.saving import background, saver, write
from ingot.train.saving.state import load_run
from ingot.workspace.errors import ArtifactError, CheckFailed, Interrupted
from ingot.workspace.files import file_sha256, read_json
from tests.making.stages import Listener
from tests.train.saving.small_run import Run, make_saver, names, same

Hold = threading.Event


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Hold:
    """While it is not set, nothing is written."""
    event, real = Hold(), save_state

    def held(*arguments: Any, **options: Any) -> None:
        assert event.wait(20)
        real(*arguments, **options)

    monkeypatch.setattr(write, "save_state", held)
    return event


@pytest.mark.parametrize("asynchronous", [True, False])
def test_everything_comes_back(asynchronous: bool, tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path, asynchronous=asynchronous)
    run.train(0, 3)
    saved = run.values()
    assert run.save(keeper, 3, tokens=30, source={"cursor": [1, 2]}, guards={"window": [0.5]}) > 0
    run.train(3, 5)
    went_on = run.values()
    keeper.wait()
    other = Run(seed=2)
    training = other.restore(make_saver(tmp_path))
    assert training == {"step": 3, "tokens": 30, "source": {"cursor": [1, 2]}, "guards": {"window": [0.5]}}
    assert same(other.values(), saved)
    other.train(3, 5)
    assert same(other.values(), went_on), "and the run goes on to the bit"
    assert all(float(state["step"]) == 5 for state in other.optimizer.state.values())


def test_training_goes_on_while_the_checkpoint_is_written(hold: Hold, tmp_path: Path) -> None:
    """What is written is the state at the save, whatever the run does before the writing begins."""
    run, keeper = Run(), make_saver(tmp_path)
    run.train(0, 2)
    saved = run.values()
    run.save(keeper, 2)
    run.train(2, 6)
    assert not (tmp_path / "steps" / "step-0000002").exists()
    hold.set()
    keeper.wait()
    other = Run(seed=2)
    other.restore(make_saver(tmp_path))
    assert same(other.values(), saved)
    assert not same(run.values(), saved)


def test_the_next_save_waits_loudly_and_buffers_are_used_again(
    hold: Hold, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listener: Listener
) -> None:
    monkeypatch.setattr(saver, "PATIENCE_SECONDS", 0.1)
    run, keeper = Run(), make_saver(tmp_path, listener, keep=2)
    run.train(0, 1)
    first = run.values()
    run.save(keeper, 1)
    buffers = {name: each.data_ptr() for name, each in keeper._copy._buffers.items()}
    run.train(1, 2)
    threading.Timer(0.3, hold.set).start()
    assert run.save(keeper, 2) > 0.2, "the time that the run stood still"
    assert listener.lines == [
        "step 2: the checkpoint before is still being written and the run waits for it; save less often, or to a faster disk"
    ]
    assert {name: each.data_ptr() for name, each in keeper._copy._buffers.items()} == buffers
    second = run.values()
    keeper.wait()
    assert names(tmp_path) == ["step-0000001", "step-0000002"]
    other = Run(seed=2)
    other.restore(make_saver(tmp_path))
    assert same(other.values(), second)
    shutil.rmtree(tmp_path / "steps" / "step-0000002")
    other.restore(make_saver(tmp_path))
    assert same(other.values(), first), "the buffers were not filled before the first one was written"


def test_an_error_in_the_background_is_raised_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listener: Listener
) -> None:
    run, keeper = Run(), make_saver(tmp_path, listener)
    run.train(0, 1)
    run.save(keeper, 1)
    keeper.wait()
    monkeypatch.setattr(write, "write_json", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
    run.save(keeper, 2)
    with pytest.raises(OSError, match="no space left"):
        run.save(keeper, 3)
    assert names(tmp_path) == ["step-0000001"], "the one before is intact, and no half of the other is left"
    verify_checkpoint(tmp_path / "steps" / "step-0000001")
    run.save(keeper, 3)
    with pytest.raises(OSError, match="no space left"):
        keeper.finish(run.model)
    run.save(keeper, 3)
    with pytest.raises(CheckFailed), keeper:
        raise CheckFailed("another")
    assert listener.lines == ["the last checkpoint was not written: no space left"], "the other error goes first"
    run.save(keeper, 3)
    with pytest.raises(OSError, match="no space left"), keeper:
        raise Interrupted  # promises that the work is saved, which it is not
    monkeypatch.undo()
    run.save(keeper, 3)
    keeper.wait()
    assert names(tmp_path) == ["step-0000001", "step-0000003"]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_disk_that_is_full_while_torch_writes(
    asynchronous: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """torch wraps such an error in one that is no `Exception`, which a thread that catches those would lose."""
    run, keeper = Run(), make_saver(tmp_path, asynchronous=asynchronous)
    run.train(0, 1)
    run.save(keeper, 1)
    keeper.wait()
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(FileSystemWriter, "write_data", lambda *_: (_ for _ in ()).throw(full))
    with pytest.raises(OSError, match="No space left on device") as raised:
        run.save(keeper, 2)
        keeper.wait()
    assert raised.value.errno == errno.ENOSPC
    assert names(tmp_path) == ["step-0000001"]


def test_when_all_are_damaged_the_run_stops_and_deletes_nothing(tmp_path: Path, listener: Listener) -> None:
    """It may be the disk, which can be read again tomorrow; a run that begins again would write over years of work."""
    run, keeper = Run(), make_saver(tmp_path, keep=2)
    for step in (8, 9):
        run.train(step, step + 1)
        run.save(keeper, step)
    keeper.wait()
    for step in (8, 9):
        (tmp_path / "steps" / f"step-000000{step}" / "manifest.json").unlink()
    with pytest.raises(ArtifactError, match="all checkpoints of the run are damaged: step-0000009, step-0000008"):
        run.restore(make_saver(tmp_path, listener, keep=2))
    assert [line.partition(":")[0] for line in listener.lines] == [
        "checkpoint step-0000009 is damaged and passed over",
        "checkpoint step-0000008 is damaged and passed over",
    ]
    assert names(tmp_path) == ["step-0000008", "step-0000009"]


def test_another_ranks_lost_network_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listener: Listener
) -> None:
    """What the other rank could not reach is an error here too, and the checkpoint stays."""
    run, keeper = Run(), make_saver(tmp_path, listener)
    run.train(1, 2)
    run.save(keeper, 1)
    keeper.wait()

    def with_another(work: Callable[[], Any]) -> list[Any]:
        found = work()
        if "_problem" in work.__code__.co_names:
            raise ArtifactError("rank 1 failed: OSError: Stale file handle", fix="put right what is wrong there")
        return [found]

    monkeypatch.setattr(keeper.ranks, "each", with_another)
    with pytest.raises(ArtifactError, match="rank 1 failed"):
        run.restore(keeper)
    assert names(tmp_path) == ["step-0000001"] and not listener.lines


def test_a_bad_sector_is_damage_and_a_lost_network_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listener: Listener
) -> None:
    run, keeper = Run(), make_saver(tmp_path, listener)
    for step in (1, 2):
        run.train(step, step + 1)
        run.save(keeper, step)
    keeper.wait()
    real = file_sha256

    def failing(number: int) -> Callable[[Path], str]:
        def read(path: Path) -> str:
            if "step-0000002" in str(path):
                raise OSError(number, os.strerror(number), str(path))
            return real(path)

        return read

    monkeypatch.setattr(checkpoint, "file_sha256", failing(errno.ESTALE))
    with pytest.raises(OSError, match="Stale file handle"):
        run.restore(keeper)
    assert names(tmp_path) == ["step-0000001", "step-0000002"], "it may be intact"
    monkeypatch.setattr(checkpoint, "file_sha256", failing(errno.EIO))
    assert run.restore(keeper) == {"step": 1}
    assert "step-0000002 is damaged and passed over" in listener.lines[0]
    assert "Input/output error" in listener.lines[0]


def test_waiting_has_a_deadline(hold: Hold, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path)
    keeper._background = background.Background(deadline_seconds=0.1)
    run.train(0, 1)
    run.save(keeper, 1)
    with pytest.raises(CheckFailed, match=r"not written after 0 s"):
        keeper.wait()
    hold.set()


def test_a_stop_at_once_does_not_wait(hold: Hold, tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path)
    run.train(0, 1)
    run.save(keeper, 1)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), keeper:
        raise KeyboardInterrupt
    assert time.monotonic() - began < 5
    hold.set()
    keeper.wait()


def test_before_the_first_step_the_optimizer_stays_untouched(tmp_path: Path) -> None:
    """torch's own state dict of a fresh optimizer makes it take a step, after which it counts one too many."""
    run, straight, keeper = Run(), Run(), make_saver(tmp_path)
    run.save(keeper, 0)
    keeper.wait()
    run.train(0, 2)
    straight.train(0, 2)
    assert same(run.values(), straight.values())
    assert run.restore(keeper) == {"step": 0}
    assert not run.optimizer.state
    run.train(0, 2)
    assert same(run.values(), straight.values())


def test_a_parameter_that_never_had_a_gradient_has_no_state_later_either(tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path)
    late = next(iter(run.model.parameters()))
    late.requires_grad_(False)
    run.train(0, 2)
    late.requires_grad_(True)
    assert late not in run.optimizer.state
    saved = run.values()
    run.save(keeper, 2)
    other = Run(seed=2)
    keeper.wait()
    other.restore(make_saver(tmp_path))
    assert same(other.values(), saved)
    run.train(2, 4)
    other.train(2, 4)
    assert same(other.values(), run.values())


def test_hyperparameters_are_those_of_the_run_that_goes_on(tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path)
    run.train(0, 2)
    run.save(keeper, 2)
    keeper.wait()
    other = Run()
    other.optimizer.param_groups[0] |= {"lr": 0.5, "weight_decay": 0.25}
    other.restore(make_saver(tmp_path))
    assert other.optimizer.param_groups[0]["lr"] == 0.5
    assert other.optimizer.param_groups[0]["weight_decay"] == 0.25


def test_the_final_checkpoint_is_what_save_checkpoint_writes(tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path)
    run.train(0, 3)
    run.save(keeper, 3)
    keeper.finish(run.model)
    assert names(tmp_path) == []
    loaded = load_model(tmp_path)
    assert same(loaded.state_dict(), dict(run.model.state_dict()))
    manifest = read_json(tmp_path / "checkpoint" / "manifest.json")
    assert sorted(manifest) == ["config.json", "state/.metadata", "state/__0_0.distcp"]


def test_a_model_is_loaded_from_a_checkpoint_in_progress(tmp_path: Path) -> None:
    run, keeper = Run(), make_saver(tmp_path)
    run.train(0, 3)
    run.save(keeper, 3)
    keeper.wait()
    assert same(load_model(tmp_path / "steps" / "step-0000003").state_dict(), dict(run.model.state_dict()))


def test_torch_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    """The state is a plain torch distributed checkpoint: torch's own save and load understand it."""
    from torch.distributed.checkpoint.state_dict_loader import load as torch_load

    run, keeper = Run(), make_saver(tmp_path)
    run.train(0, 3)
    run.save(keeper, 3)
    keeper.wait()
    state = {"model": {name: torch.zeros_like(each) for name, each in run.model.state_dict().items()}}
    torch_load(state, checkpoint_id=tmp_path / "steps" / "step-0000003" / "state", no_dist=True)
    assert same(state["model"], dict(run.model.state_dict()))
    state = {"model": {name: each + 1 for name, each in state["model"].items()}}
    target = tmp_path / "theirs"
    torch_save(state, checkpoint_id=target / "state", no_dist=True)
    load_run(target, run.model, None)
    assert same(dict(run.model.state_dict()), state["model"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_the_update_waits_for_the_copy_and_the_passes_do_not(tmp_path: Path) -> None:
    model = torch.nn.Linear(8192, 8192, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0)
    from ingot.train.saving.host_copy import HostCopy

    copy = HostCopy()
    for step in range(3):
        expected = model.weight.detach().clone()
        buffers = copy.take({"weight": model.weight.detach()}, optimizer)
        model.weight.grad = torch.full_like(model.weight, step + 1.0)
        optimizer.step()
        copy.wait()
        assert buffers["weight"].is_pinned()
        assert torch.equal(buffers["weight"], expected.cpu()), "the weights before the update"
        assert not torch.equal(model.weight, expected)
