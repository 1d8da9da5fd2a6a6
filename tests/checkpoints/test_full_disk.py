"""A full disk while torch writes: the disk's own error, and which folder it was. Files here may have a limited size only."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from ingot.checkpoints.full_disk import disk_errors, save_tensors
from ingot.checkpoints.state_files import save_state, write_state
from ingot.checkpoints.tensors import MemoryTensors

TENSORS = {"weights": torch.zeros(500_000)}  # 2 MB
WRITES: dict[str, Callable[[Path], None]] = {
    "a state in memory": lambda folder: save_state(dict(TENSORS), folder),
    "a stored model": lambda folder: write_state(MemoryTensors(TENSORS), folder),
    "one file": lambda folder: save_tensors(folder, TENSORS),
}


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a disk with that much space left; Python ignores the signal, and the write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [100, 1_000, 300_000, 1_999_000, 2_000_500])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_the_error_is_that_of_the_disk(write: Callable[[Path], None], room: int, tmp_path: Path) -> None:
    """torch has another one wherever its archive is cut: `RuntimeError: … unexpected pos 704 vs 598`."""
    with pytest.raises(OSError, match="File too large") as caught, files_of_at_most(room):
        write(tmp_path / "here")
    assert caught.value.errno == errno.EFBIG
    assert str(caught.value.filename) == str(tmp_path / "here")


def test_what_torch_itself_raises(tmp_path: Path) -> None:
    """Where this is no longer so, `disk_errors` may go."""
    with (
        pytest.raises(RuntimeError, match="unexpected pos") as caught,
        files_of_at_most(300_000),
        (tmp_path / "file").open("wb") as file,
    ):
        torch.save(TENSORS, file)
    assert isinstance(caught.value.__context__, OSError)


def test_other_errors_stay_as_they_are(tmp_path: Path) -> None:
    for error in (RuntimeError("a mistake"), ValueError("another"), OSError("12 requested and 3 written")):
        with pytest.raises(type(error)) as caught, disk_errors(tmp_path):
            raise error
        assert caught.value is error
