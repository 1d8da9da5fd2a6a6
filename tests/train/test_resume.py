"""Going on after a stop, a damaged checkpoint, or a kill at an awkward moment: always as if nothing had happened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from ingot.checkpoints.checkpoint import load_model
from ingot.workspace.errors import ArtifactError, Interrupted
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener, stage_folder
from tests.slow import first_fast
from tests.train.toy import StepSource, make_trainer, records, same_weights

STEPS = 12


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    folder = stage_folder(tmp_path_factory.mktemp("whole"))
    make_trainer(folder).run()
    return records(folder), load_model(folder.path).state_dict()


def stopping(folder: StageFolder, at: int) -> StepSource:
    """A source that asks for a stop when step `at` begins."""
    return StepSource(lambda step: folder.stop.request() if step == at else None)


def interrupt(path: Path, at: int) -> None:
    """Run until the end of step `at`."""
    folder = stage_folder(path)
    with pytest.raises(Interrupted):
        make_trainer(folder, source=stopping(folder, at)).run()


def assert_whole(folder: StageFolder, expected: tuple[list[dict[str, Any]], dict[str, Tensor]]) -> None:
    assert records(folder) == expected[0]
    assert same_weights(load_model(folder.path).state_dict(), expected[1])
    assert list((folder.path / "steps").iterdir()) == []


@pytest.mark.parametrize("at", first_fast([0, 5, 10, 1, 2, 7], 3))
def test_a_stop_saves_and_the_rest_is_the_same(
    at: int, folder: StageFolder, listener: Listener, uninterrupted: tuple[Any, Any]
) -> None:
    interrupt(folder.path, at)
    assert not (folder.path / "checkpoint").exists()
    assert [row["step"] for row in folder.metrics.read()] == list(range(at + 1))
    asked: list[int] = []
    make_trainer(folder, source=StepSource(asked.append)).run()
    assert asked == list(range(at + 1, STEPS)), "no step was lost and none was made twice"
    assert f"from step {at + 1}" in listener.lines[0]
    assert_whole(folder, uninterrupted)


def test_many_stops(folder: StageFolder, uninterrupted: tuple[Any, Any]) -> None:
    for at in range(0, STEPS - 1, 2):
        interrupt(folder.path, at)
    make_trainer(folder).run()
    assert_whole(folder, uninterrupted)


def test_a_stop_in_the_last_step_comes_too_late(folder: StageFolder, uninterrupted: tuple[Any, Any]) -> None:
    make_trainer(folder, source=stopping(folder, STEPS - 1)).run()
    assert_whole(folder, uninterrupted)


def flip_a_byte(checkpoint: Path) -> Path:
    file = checkpoint / "state" / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return file


def tear_the_manifest(checkpoint: Path) -> Path:
    file = checkpoint / "manifest.json"
    file.write_text(file.read_text()[:50])
    return file


def lose_a_file(checkpoint: Path) -> Path:
    file = checkpoint / "training.json"
    file.unlink()
    return file


@pytest.mark.parametrize("damage", [flip_a_byte, tear_the_manifest, lose_a_file])
def test_a_damaged_checkpoint_is_passed_over_loudly(
    damage: Callable[[Path], Path], folder: StageFolder, listener: Listener, uninterrupted: tuple[Any, Any]
) -> None:
    interrupt(folder.path, 7)  # checkpoints 6 and 8
    file = damage(folder.path / "steps" / "step-0000008")
    asked: list[int] = []
    make_trainer(folder, source=StepSource(asked.append)).run()
    assert listener.lines[0].startswith(f"checkpoint step-0000008 is damaged and passed over: {file}:")
    assert asked == list(range(6, STEPS))
    assert_whole(folder, uninterrupted)


def test_with_every_checkpoint_damaged_the_run_stops_until_they_are_moved_away(
    folder: StageFolder, listener: Listener, uninterrupted: tuple[Any, Any]
) -> None:
    """Nothing is deleted: perhaps only the disk was away. Without them it begins again."""
    interrupt(folder.path, 7)
    steps = folder.path / "steps"
    for checkpoint in steps.iterdir():
        flip_a_byte(checkpoint)
    with pytest.raises(
        ArtifactError, match="all checkpoints of the run are damaged: step-0000008, step-0000006"
    ) as caught:
        make_trainer(folder).run()
    assert caught.value.place == str(steps) and "move them away" in str(caught.value)
    assert [line[:23] for line in listener.lines] == ["checkpoint step-0000008", "checkpoint step-0000006"]
    assert sorted(path.name for path in steps.iterdir()) == ["step-0000006", "step-0000008"]
    steps.rename(folder.path / "damaged")
    make_trainer(folder).run()
    assert listener.lines[2].endswith("from step 0")
    assert_whole(folder, uninterrupted)


def test_half_written_checkpoints_do_not_count(folder: StageFolder) -> None:
    """A folder that a kill left half written is never loaded, never counts as the newest, and is swept up."""
    interrupt(folder.path, 4)
    steps = folder.path / "steps"
    for name in ("step-0000009.partial", "step-0000003.old.partial", "step-0000005.partial"):
        shutil.copytree(steps / "step-0000005", steps / name)
    listener = Listener()
    trainer = make_trainer(stage_folder(folder.path, listener))
    training = trainer.saver.restore(trainer.model, trainer.optimizer)
    assert training is not None
    assert training["step"] == 5
    assert listener.lines == [], "they are no damaged checkpoints either"
    assert sorted(path.name for path in steps.iterdir()) == ["step-0000003", "step-0000005"]


def test_a_torn_line_of_metrics_is_cut(folder: StageFolder, listener: Listener, uninterrupted: tuple[Any, Any]) -> None:
    """Bytes of it are no text: the disk may have damaged it, too."""
    interrupt(folder.path, 4)
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 5, "loss": 1.0}\n{"step": 6, "l\xff\xfe')
    make_trainer(folder).run()
    assert "lines of metrics.jsonl that cannot be read, and go: 1" in listener.lines
    assert_whole(folder, uninterrupted)


def refuse(step: int) -> None:
    raise AssertionError(f"step {step} was trained again")


def test_a_run_killed_after_its_last_checkpoint_is_not_made_again(
    folder: StageFolder, listener: Listener, uninterrupted: tuple[Any, Any]
) -> None:
    """The final checkpoint is there and the others are gone, but the stage is not marked as finished yet."""
    first = make_trainer(folder).run()
    trainer = make_trainer(folder, source=StepSource(refuse))
    assert trainer.run() == first
    assert listener.lines[-1] == "the training was finished already"
    assert same_weights(trainer.model.state_dict(), uninterrupted[1])
    assert_whole(folder, uninterrupted)


def test_a_damaged_final_checkpoint_is_made_again(
    folder: StageFolder, listener: Listener, uninterrupted: tuple[Any, Any]
) -> None:
    make_trainer(folder).run()
    flip_a_byte(folder.path / "checkpoint")
    make_trainer(folder).run()
    assert [line for line in listener.lines if line.startswith("the final checkpoint is damaged and made again")]
    assert_whole(folder, uninterrupted)
