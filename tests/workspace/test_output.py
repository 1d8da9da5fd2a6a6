"""Standard output that cannot be written: what runs goes on, and one sentence on standard error says so."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from ingot.workspace.output import open_closed_streams, output_failure
from ingot.workspace.progress import PlainProgress


def without_reader() -> TextIO:
    """A pipe whose reader has gone, as that of `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def full() -> TextIO:
    return Path("/dev/full").open("w", encoding="utf-8")


@contextmanager
def streams(out: TextIO, err: TextIO, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with out, err, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        yield


@pytest.mark.parametrize(
    ("opened", "why"), [(without_reader, "Broken pipe"), (full, "No space left on device")], ids=["pipe", "disk"]
)
def test_lines_of_progress_go_nowhere_when_nobody_can_have_them(
    opened: Callable[[], TextIO], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = io.StringIO()
    progress = PlainProgress(interval=0.0)
    with streams(opened(), err, monkeypatch):
        progress.start(3)
        for step in range(1, 4):
            progress.advance(step)
        said = err.getvalue()
        sys.stdout.flush()  # as Python does at its end, and an error there is exit code 120
    assert said == f"standard output cannot be written ({why}); the run goes on without it\n"


def test_both_streams_may_have_the_same_reader_who_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    out = without_reader()
    with streams(out, os.fdopen(os.dup(out.fileno()), "w"), monkeypatch):
        PlainProgress().say("a line")
        sys.stdout.flush()
        sys.stderr.flush()


def test_what_is_wrong_with_it_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with streams(full(), io.StringIO(), monkeypatch):
        assert output_failure() is None, "it holds nothing to write"
        sys.stdout.write("a result")
        failure = output_failure()
        assert failure is not None and failure.strerror == "No space left on device"
        assert output_failure() is None


def test_streams_that_were_closed_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    open_closed_streams()
    with sys.stdout as stream:
        PlainProgress().say("a line")
        assert not stream.isatty() and stream.name == os.devnull
