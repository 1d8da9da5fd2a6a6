"""Copies at a URL: complete or not there, kept by the same policy, and a run that lost its disk goes on from them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ingot.checkpoints.checkpoint import load_model, verify_checkpoint
from ingot.train.saving.remote import Remote
from ingot.train.saving.steps import Steps, find_step
from ingot.workspace.errors import ArtifactError, Interrupted
from ingot.workspace.files import file_sha256, read_json, write_json
from tests.making.stages import Listener, stage_folder
from tests.train.saving.small_run import Run, make_saver, names, same
from tests.train.test_resume import flip_a_byte
from tests.train.toy import make_trainer, records, same_weights


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/far/away"
    else:
        yield "memory://far/away"
        fsspec.filesystem("memory").rm("/far", recursive=True)


def far(url: str, path: Path) -> list[str]:
    return Remote(url, path.name).names()


def test_copies_follow_the_policy_and_local_ones_are_pruned(url: str, tmp_path: Path) -> None:
    path = tmp_path / "stage-1234"
    run, keeper = Run(), make_saver(path, keep=1, keep_every=2, copy_to=url)
    for step in range(1, 6):
        run.train(step - 1, step)
        run.save(keeper, step)
        keeper.wait()
        assert far(url, path)[-1] == f"step-{step:07d}"
    run.save(keeper, 6)
    keeper.wait()
    assert far(url, path) == ["step-0000002", "step-0000004", "step-0000006"]
    assert Steps(path).there()[-1] == 6
    assert 2 not in Steps(path).there(), "kept for good, and safe at the URL"
    keeper.finish(run.model)
    assert far(url, path) == ["checkpoint", "step-0000002", "step-0000004", "step-0000006"]
    assert names(path) == ["copies.json"]
    found = find_step(path, 4)
    verify_checkpoint(found)
    assert found == path / "steps" / "step-0000004"
    with pytest.raises(ArtifactError, match=r"no checkpoint of step 5; there are those of 2, 4, 6"):
        find_step(path, 5)
    assert same(load_model(path).state_dict(), dict(run.model.state_dict()))


def test_with_an_empty_disk_a_run_goes_on_from_the_url(url: str, tmp_path: Path, listener: Listener) -> None:
    path = tmp_path / "stage-1234"
    run, keeper = Run(), make_saver(path, copy_to=url, keep_best=True)
    run.train(0, 3)
    (path / "metrics.jsonl").write_text('{"step": 2}\n')
    run.save(keeper, 3, tokens=5, validation_bits_per_byte=1.0)
    keeper.wait()
    shutil.rmtree(path)
    other = Run(seed=2)
    keeper = make_saver(path, listener, copy_to=url, keep_best=True)
    assert other.restore(keeper) == {"step": 3, "tokens": 5, "validation_bits_per_byte": 1.0}
    assert same(other.values(), run.values())
    assert listener.lines == [f"step-0000003 was copied back from {url}"]
    assert (path / "metrics.jsonl").read_text() == '{"step": 2}\n'
    assert Steps(path).best() == (3, 1.0)


def test_another_stage_with_the_same_url_finds_nothing(url: str, tmp_path: Path) -> None:
    run = Run()
    keeper = make_saver(tmp_path / "pretrain-1234", copy_to=url)
    run.train(0, 1)
    run.save(keeper, 1)
    keeper.wait()
    assert run.restore(make_saver(tmp_path / "pretrain-5678", copy_to=url)) is None


def test_a_copy_without_its_manifest_is_none_and_a_damaged_one_is_passed_over(
    url: str, tmp_path: Path, listener: Listener
) -> None:
    path = tmp_path / "stage-1234"
    run, keeper = Run(), make_saver(path, copy_to=url, keep=3)
    for step in (1, 2, 3):
        run.train(step - 1, step)
        run.save(keeper, step)
        keeper.wait()
    remote = Remote(url, path.name)
    remote.files.rm_file(str(remote.root / "step-0000003" / "manifest.json"))
    remote.files.pipe_file(str(remote.root / "step-0000002" / "state" / "__0_0.distcp"), b"half of it")
    assert far(url, path) == ["step-0000001", "step-0000002"]
    shutil.rmtree(path)
    training = run.restore(make_saver(path, listener, copy_to=url))
    assert training == {"step": 1}
    assert len(listener.lines) == 2
    assert listener.lines[0].startswith(f"the copy of step-0000002 at {url} is damaged and passed over: ")
    assert names(path) == ["step-0000001"]
    assert far(url, path) == ["step-0000001"]
    run.train(1, 2)
    keeper = make_saver(path, copy_to=url)
    run.save(keeper, 2)
    keeper.wait()
    shutil.rmtree(path)
    other = Run(seed=2)
    assert other.restore(make_saver(path, copy_to=url)) == {"step": 2}, "made again, it is copied again"
    assert same(other.values(), run.values())


def test_a_damaged_local_one_is_copied_back(url: str, tmp_path: Path, listener: Listener) -> None:
    path = tmp_path / "stage-1234"
    run, keeper = Run(), make_saver(path, listener, copy_to=url)
    run.train(0, 1)
    run.save(keeper, 1)
    keeper.wait()
    flip_a_byte(path / "steps" / "step-0000001")
    other = Run(seed=2)
    assert other.restore(keeper) == {"step": 1}
    assert same(other.values(), run.values())
    assert listener.lines[0].startswith("checkpoint step-0000001 is damaged and passed over: ")


def test_a_url_that_fails_is_tried_again_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listener: Listener
) -> None:
    path, url = tmp_path / "stage-1234", f"file://{tmp_path}/far"
    run, keeper = Run(), make_saver(path, listener, keep=1, keep_every=2, copy_to=url)
    broken = True
    real = Remote._send

    def send(remote: Remote, file: Path, target: str) -> None:
        if broken and file.name == "manifest.json":
            raise OSError("no route to host")
        real(remote, file, target)

    monkeypatch.setattr(Remote, "_send", send)
    for step in range(1, 4):
        run.train(step - 1, step)
        run.save(keeper, step)
        keeper.wait()
    assert far(url, path) == []
    assert Steps(path).there() == [2, 3], "2 is for good and not copied yet"
    assert len(listener.lines) == 3
    assert all("failed and is tried again at the next one: no route to host" in line for line in listener.lines)
    with pytest.raises(ArtifactError, match="only the copy is made"):
        keeper.finish(run.model)
    assert (path / "checkpoint").exists()
    assert Steps(path).there() == [2, 3]
    broken = False
    keeper.finish(run.model)
    assert far(url, path) == ["checkpoint", "step-0000002"]
    assert Steps(path).there() == []


def test_a_slow_url_does_not_hold_up_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, url = tmp_path / "stage-1234", f"file://{tmp_path}/far"
    run, keeper = Run(), make_saver(path, keep=1, copy_to=url)
    go, real = threading.Event(), Remote._send

    def send(remote: Remote, file: Path, target: str) -> None:
        assert go.wait(20)
        real(remote, file, target)

    monkeypatch.setattr(Remote, "_send", send)
    for step in range(1, 5):
        run.train(step - 1, step)
        run.save(keeper, step)
    keeper._background.wait()
    assert far(url, path) == []
    assert Steps(path).there() == [1, 4], "1 is being copied and stays; 2 and 3 have gone"
    go.set()
    keeper.wait()
    run.save(keeper, 5)
    keeper.wait()
    assert far(url, path) == ["step-0000005"]


def test_sizes_are_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listener: Listener) -> None:
    path, url = tmp_path / "stage-1234", f"file://{tmp_path}/far"
    run, keeper = Run(), make_saver(path, listener, copy_to=url)
    real = Remote._send

    def send(remote: Remote, file: Path, target: str) -> None:
        real(remote, file, target)
        if file.suffix == ".distcp":
            Path(target).write_bytes(file.read_bytes()[:-1])

    monkeypatch.setattr(Remote, "_send", send)
    run.train(0, 1)
    run.save(keeper, 1)
    keeper.wait()
    assert far(url, path) == []
    assert "__0_0.distcp has" in listener.lines[0]


def test_a_url_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"checkpoints.copy_to: the URL cannot be used: .*nowhere"):
        make_saver(tmp_path, copy_to="nowhere://bucket")


def test_the_loop_loses_its_disk_twice_and_finishes_the_same(tmp_path: Path) -> None:
    """Through the trainer: stopped, its folder deleted, gone on from the URL; then deleted again when it was finished."""
    from tests.train.test_resume import stopping

    options: dict[str, Any] = {"checkpoints": {"every": 3, "copy_to": f"file://{tmp_path}/far"}}
    straight = stage_folder(tmp_path / "straight")
    make_trainer(straight).run()
    path = tmp_path / "stage-1234"
    folder = stage_folder(path)
    with pytest.raises(Interrupted):
        make_trainer(folder, source=stopping(folder, 7), **options).run()
    shutil.rmtree(path)
    listener = Listener()
    make_trainer(stage_folder(path, listener), **options).run()
    assert listener.lines[0].startswith("step-0000008 was copied back")
    assert records(stage_folder(path)) == records(straight)
    assert same_weights(load_model(path).state_dict(), load_model(straight.path).state_dict())
    shutil.rmtree(path)
    listener = Listener()
    make_trainer(stage_folder(path, listener), **options).run()
    assert listener.lines[-1] == "the training was finished already"
    assert same_weights(load_model(path).state_dict(), load_model(straight.path).state_dict())


def test_a_copy_cannot_write_outside_its_folder(tmp_path: Path) -> None:
    url, path = f"file://{tmp_path}/far", tmp_path / "stage-1234"
    run, keeper = Run(), make_saver(path, copy_to=url)
    run.save(keeper, 1)
    keeper.wait()
    copy = tmp_path / "far" / path.name / "step-0000001"
    manifest = read_json(copy / "manifest.json")
    (copy.parent / "stolen").write_text("text")
    write_json(copy / "manifest.json", manifest | {"../stolen": file_sha256(copy.parent / "stolen")})
    shutil.rmtree(path)
    with pytest.raises(ArtifactError, match="is not the name of a file in this folder"):
        Remote(url, path.name).download("step-0000001", path / "steps" / "step-0000001")
    assert not (path / "steps" / "stolen").exists()
