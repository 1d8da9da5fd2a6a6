"""Configs and their hash, metrics with a cut, the stop flag, and numbers as people read them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from ingot.workspace.config import Config, content_hash
from ingot.workspace.errors import IngotError, Interrupted
from ingot.workspace.interrupt import StopSignal, stop_on_signals
from ingot.workspace.metrics import MetricsLog
from ingot.workspace.progress import Pace, PlainProgress, format_number, format_seconds, format_values


class Options(Config):
    """An example."""

    steps: int = Field(default=3, gt=0, description="how many")


def test_configs_are_strict_and_frozen() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Options.model_validate({"stepz": 1})
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Options(), *("steps", 4))


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), min_size=1))
def test_the_hash_does_not_depend_on_order(value: dict[str, int | str]) -> None:
    assert content_hash(value) == content_hash(dict(reversed(value.items())))
    assert content_hash(value) != content_hash({**value, "more": 1})


def test_the_hash_of_a_config_is_that_of_its_values() -> None:
    assert content_hash(Options()) == content_hash({"steps": 3}) == content_hash(Options(steps=3))
    assert len(content_hash(Options(), digits=20)) == 20
    with pytest.raises(ValueError, match="JSON compliant"):
        content_hash({"a": float("nan")})


def test_metrics_are_cut_and_survive_a_torn_line(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "deep" / "metrics.jsonl")
    assert log.read() == []
    for step in range(5):
        log.append(step, {"loss": 1 / (step + 1)})
    with log.path.open("a") as file:
        file.write('{"step": 5, "lo')
    assert [row["step"] for row in log.read()] == [0, 1, 2, 3, 4]
    log.cut(3)
    log.append(3, {"loss": 9.0})
    assert [(row["step"], row["loss"]) for row in log.read()] == [(0, 1.0), (1, 0.5), (2, 1 / 3), (3, 9.0)]


@pytest.mark.parametrize(
    "damage", [b'{"step": 1, "loss": \xff\xfe}', b"\0" * 30, b"[" * 100_000, b"7", b'{"loss": 1.0}']
)
def test_a_damaged_line_of_metrics_is_passed_over(tmp_path: Path, damage: bytes) -> None:
    """Bytes that are no text, what a power cut leaves, brackets without end, no row: the other lines stay."""
    log = MetricsLog(tmp_path / "metrics.jsonl")
    lines = [b'{"step": 0, "loss": 3.0}', damage, b'{"step": 2, "loss": 1.0}', b'{"step": 3, "loss": 0.5}', b""]
    log.path.write_bytes(b"\n".join(lines))
    assert [row["step"] for row in log.read()] == [0, 2, 3]
    assert log.cut(3) == 1
    assert log.path.read_bytes() == b'{"step": 0, "loss": 3.0}\n{"step": 2, "loss": 1.0}\n'
    assert log.cut(3) == 0


def test_the_first_signal_asks_and_the_second_stops() -> None:
    stop = StopSignal()
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals(stop):
        stop.check()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        with pytest.raises(Interrupted):
            stop.check()
        os.kill(os.getpid(), signal.SIGTERM)  # asking again changes nothing
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_numbers_for_people() -> None:
    assert [format_number(value) for value in (3, 1234567, 0.00012345, 12.3456, 4321.7, True, "x")] == [
        "3",
        "1,234,567",
        "0.0001234",
        "12.35",
        "4,322",
        "True",
        "x",
    ]
    assert [format_seconds(value) for value in (3.21, 59.94, 245, 7390)] == ["3.2 s", "59.9 s", "4:05", "2:03:10"]
    assert format_values({"loss": 2.31, "tokens": 1000}) == "loss 2.31 · tokens 1,000"


def test_plain_progress(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(interval=1000.0)
    progress.say("before")
    progress.stage("sft", 2, 3)
    progress.start(10)
    progress.advance(4, loss=1.5)  # too soon for another line
    progress.advance(10, loss=1.25)
    lines = capsys.readouterr().out.split("\n")
    assert lines[:2] == ["before", "[sft] stage 2 of 3"]
    assert lines[2:] == ["[sft] step 10/10 · loss 1.25 · left 0.0 s", ""]


def test_without_a_finished_unit_nothing_is_said_of_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(interval=0.0)
    progress.start(64, unit="answer", done=2)
    progress.advance(2, **{"tokens/s": 1234.5})
    assert capsys.readouterr().out == "answer 2/64 · tokens/s 1,234\n"


def test_the_pace_of_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last seconds: what came long ago does not count."""
    now = [100.0]
    monkeypatch.setattr("ingot.workspace.progress.time.monotonic", lambda: now[0])
    pace, found = Pace(seconds=10.0), []
    for seconds, count in ((0, 50), (1, 60), (5, 100), (20, 100), (25, 400), (40, 400)):
        now[0] = 100.0 + seconds
        found.append(pace.of(count))
    assert found == [0.0, 10.0, 10.0, 0.0, 60.0, 0.0]


def test_error_messages_say_what_where_and_how() -> None:
    assert str(IngotError("it broke", place="here", fix="mend it")) == "here: it broke\n  fix: mend it"
    assert str(IngotError("it broke")) == "it broke"
