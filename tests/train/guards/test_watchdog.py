"""The watchdog and the heartbeat with commands that do nothing but live, die, beat and hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ingot.train.guards.family import Member, family, send
from ingot.train.guards.heartbeat import HEARTBEAT, Heartbeat, read_heartbeats
from ingot.train.guards.watchdog import LOG, Patience, Watchdog, expected_silence
from ingot.workspace.files import read_jsonl
from tests.making.processes import alive, wait_until

QUICK = Patience(silence=1.5, grace=0.5, pause=0.01, longest_pause=0.03, look=0.02, look_around=0.05)
START = f"""
import json, os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
tries = folder / "tries"
number = len(tries.read_text()) + 1 if tries.exists() else 1
tries.write_text("x" * number)
def beat(**more):
    content = {{"time": time.time(), "every": 0.1, "doing": "step", "step": number, "step_seconds": 0.01, **more}}
    partial = folder / "partial"
    partial.write_text(json.dumps(content))
    partial.replace(folder / "{HEARTBEAT}")
def checkpoint():
    (folder / "steps" / f"step-{{number:07d}}").mkdir(parents=True)
"""

MKDIR = "folder.mkdir(exist_ok=True)\n"


def watch(folder: Path, body: str) -> tuple[int, list[str], int]:
    """Exit code, events, and how often the command was started."""
    command = [sys.executable, "-c", START + body, str(folder)]
    lines: list[str] = []
    code = Watchdog(command, command, folder, QUICK, lines.append).run()
    events = [row["event"] for row in read_jsonl(folder / LOG)]
    assert [row["text"] for row in read_jsonl(folder / LOG)] == [line.removeprefix("watchdog: ") for line in lines]
    return code, events, len((folder / "tries").read_text())


def test_what_ends_well_is_not_started_again(tmp_path: Path) -> None:
    assert watch(tmp_path, "") == (0, ["start", "end"], 1)


def test_what_dies_is_started_again(tmp_path: Path) -> None:
    body = "os.kill(os.getpid(), signal.SIGKILL) if number == 1 else sys.exit(1 if number == 2 else 0)"
    assert watch(tmp_path, body) == (0, ["start", "restart", "start", "restart", "start", "end"], 3)
    texts = [row["text"] for row in read_jsonl(tmp_path / LOG) if row["event"] == "restart"]
    assert texts[0].startswith("it was killed by SIGKILL; starting it again in 0.01 s")
    assert texts[1].startswith("it ended with exit code 1; starting it again in 0.02 s"), "the pause doubles"


def test_an_error_that_explains_itself_is_not_tried_again(tmp_path: Path) -> None:
    assert watch(tmp_path, "sys.exit(2)") == (2, ["start", "end"], 1)


def test_dying_without_progress_has_an_end(tmp_path: Path) -> None:
    assert watch(tmp_path, "sys.exit(7)") == (7, ["start", "restart", "start", "restart", "start", "give up"], 3)
    (last,) = [row["text"] for row in read_jsonl(tmp_path / LOG) if row["event"] == "give up"]
    assert last == "it ended with exit code 7; 3 starts in a row without a new checkpoint: giving up"


def test_progress_buys_new_tries(tmp_path: Path) -> None:
    """Checkpoints at the second and the fourth start: 1, [2], 3, [4], 5, 6, 7."""
    code, _, starts = watch(tmp_path, "checkpoint() if number in (2, 4) else None\nsys.exit(1)")
    assert (code, starts) == (1, 7)


def test_a_silent_run_is_ended_and_started_again(tmp_path: Path) -> None:
    """It ignores SIGTERM, as one that hangs in a system call would, so SIGKILL must end it."""
    body = "beat()\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(30 if number == 1 else 0)"
    began = time.monotonic()
    assert watch(tmp_path, body) == (0, ["start", "hang", "restart", "start", "end"], 2)
    assert time.monotonic() - began < 15
    (hang,) = [row["text"] for row in read_jsonl(tmp_path / LOG) if row["event"] == "hang"]
    assert "no sign of life for 2 s (at most 2 s were expected) since step 1, step; ending process" in hang


def test_a_run_that_beats_or_has_no_heartbeat_may_take_its_time(tmp_path: Path) -> None:
    assert watch(tmp_path / "beats", MKDIR + "for _ in range(23): beat(); time.sleep(0.1)")[:2] == (0, ["start", "end"])
    assert watch(tmp_path / "none", MKDIR + "time.sleep(2.2)")[:2] == (0, ["start", "end"])
    assert watch(tmp_path / "ended", MKDIR + "beat(doing='end'); time.sleep(2.2)")[:2] == (0, ["start", "end"])


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "beat(); time.sleep(30)"])
@pytest.mark.parametrize("own_session", [False, True])
def test_children_of_a_dead_or_hung_run_are_ended_too(own_session: bool, end: str, tmp_path: Path) -> None:
    """Ranks, which launchers give sessions of their own, say: they would hold the run's lock and its devices."""
    body = f"""
import subprocess
if number == 1:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session={own_session})
    (folder / "child").write_text(str(child.pid))
    time.sleep(0.5)
    {end}
"""
    assert watch(tmp_path, body)[0] == 0
    wait_until(lambda: not alive(int((tmp_path / "child").read_text())))


def test_a_family_is_all_below_a_process(tmp_path: Path) -> None:
    body = "import subprocess, sys, time; child = subprocess.Popen({}); print(child.pid, flush=True); time.sleep(30)"
    inner = [sys.executable, "-c", "import time; time.sleep(30)"]
    middle = subprocess.Popen([sys.executable, "-c", body.format(inner)], stdout=subprocess.PIPE, text=True)
    assert middle.stdout is not None
    grandchild = int(middle.stdout.readline())
    below = family(os.getpid())
    assert {middle.pid, grandchild} <= {member.pid for member in below}
    assert os.getpid() not in {member.pid for member in below}
    assert {member.pid for member in family(middle.pid)} == {grandchild}
    (member,) = family(middle.pid)
    send(Member(member.pid, member.began + 1), signal.SIGKILL)  # another process that has its number now
    assert alive(grandchild)
    send(member, signal.SIGKILL)
    middle.kill()
    middle.wait()
    wait_until(lambda: not alive(grandchild))


def test_what_a_power_cut_or_a_full_disk_does_to_its_files_ends_no_watch(tmp_path: Path) -> None:
    (tmp_path / HEARTBEAT).write_text("")
    (tmp_path / LOG).mkdir()
    command = [sys.executable, "-c", START + "sys.exit(number == 1)", str(tmp_path)]
    lines: list[str] = []
    assert Watchdog(command, command, tmp_path, QUICK, lines.append).run() == 0
    assert sum("starting it again" in line for line in lines) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on_and_end_the_watch(number: signal.Signals, tmp_path: Path) -> None:
    """The run saves and ends with 0 on SIGTERM, as `ingot run` does; the watchdog does not start it again."""
    run = """
def stop(number, frame):
    (folder / "saved").write_text(str(number))
    sys.exit(0 if number == signal.SIGTERM else 130)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
(folder / "ready").touch()
time.sleep(30)
"""
    driver = f"""
import sys
from pathlib import Path
from ingot.train.guards.watchdog import Watchdog, Patience
command = [sys.executable, "-c", {START + run!r}, {str(tmp_path)!r}]
sys.exit(Watchdog(command, command, Path({str(tmp_path)!r}), Patience(look=0.02)).run())
"""
    watchdog = subprocess.Popen([sys.executable, "-c", driver])
    wait_until((tmp_path / "ready").exists, 30)
    watchdog.send_signal(number)
    assert watchdog.wait(20) == (0 if number == signal.SIGTERM else 130)
    assert (tmp_path / "saved").read_text() == str(int(number))
    assert [row["event"] for row in read_jsonl(tmp_path / LOG)] == ["start", "end"]


def test_the_watchdog_does_not_need_torch() -> None:
    code = "import sys, ingot.train.guards.watchdog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("beat", "seconds"),
    [
        ({"doing": "step", "step_seconds": 1.0}, 310.0),
        ({"doing": "data", "step_seconds": 60.0}, 1210.0),
        ({"doing": "checkpoint", "step_seconds": 1.0}, 6 * 310.0),
        ({"doing": "validation", "step_seconds": 1.0}, 6 * 310.0),
        ({"doing": "step"}, 6 * 310.0),
        ({"doing": "start"}, 6 * 310.0),
    ],
)
def test_the_expected_silence_follows_the_step_time(beat: dict[str, Any], seconds: float) -> None:
    """Twenty steps, at least five minutes, and the ten seconds between beats; the first step may compile."""
    assert expected_silence({"every": 10.0, **beat}, Patience()) == seconds


def test_a_heartbeat_is_written_seldom_and_says_what_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    heart = Heartbeat(tmp_path / "stage", 10.0)

    def written(after: float, doing: Any, **numbers: float) -> Any:
        now[0] += after
        heart.beat(doing, **numbers)
        (beat,) = read_heartbeats(tmp_path)
        return beat["doing"], beat["step"]

    assert written(0, "start", step=5) == ("start", 5)
    assert written(9, "step", step=6) == ("start", 5), "not yet"
    assert written(2, "data", step=7) == ("data", 7)
    assert written(1, "checkpoint") == ("checkpoint", 7), "what may be long is said at once"
    beat = json.loads((tmp_path / "stage" / HEARTBEAT).read_text())
    assert beat["pid"] == os.getpid() and beat["host"] and abs(beat["time"] - time.time()) < 60
    assert list((tmp_path / "stage").iterdir()) == [tmp_path / "stage" / HEARTBEAT]
    Heartbeat(tmp_path / "other", 10.0, writes=False).beat("start")
    assert not (tmp_path / "other").exists()
