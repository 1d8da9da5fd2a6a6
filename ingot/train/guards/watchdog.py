"""The watchdog: a parent process that starts a run, follows its heartbeat, and starts it again when it dies or hangs.

A run goes on from its last checkpoint by itself, so starting the same command again is all there is to do.

    the run …                                            the watchdog …
    ends with 0, or was stopped by a person              ends with its exit code
    ends with 2: an error that its message explains      ends with 2; the same would happen again
    ends otherwise, or is killed                         starts it again, after a pause that doubles
    is silent for longer than expected                   SIGTERM, after a grace SIGKILL, and starts it again
    made no progress in several starts in a row          ends with the reason

Progress is a new checkpoint or a stage that is done. SIGINT and SIGTERM are passed on once, and no new start follows. Silence is
measured only while a training loop says it is alive: other stages have no heartbeat and are watched for death alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.train.guards.family import Member, family, lives, send
from ingot.train.guards.heartbeat import read_heartbeats
from ingot.workspace.files import PARTIAL
from ingot.workspace.interrupt import on_signals
from ingot.workspace.stage import DONE

EXPLAINED, STOPPED_BY_HAND = 2, 130
LOG = "watchdog.jsonl"


@dataclass(frozen=True)
class Patience:
    """How long the watchdog waits, and how often it tries; all times in seconds."""

    silence: float = 300.0  # that is a hang, at the least
    steps: float = 20.0  # steps whose time is a hang, if that is longer
    long_work: float = 6.0  # times longer while it starts, saves or validates
    grace: float = 60.0  # between SIGTERM and SIGKILL
    starts: int = 3  # in a row without progress
    pause: float = 2.0  # before the second start; doubles up to `longest_pause`
    longest_pause: float = 120.0
    look: float = 0.5  # between two looks at the child
    look_around: float = 5.0  # between two looks at all that it has started


USUAL = Patience()


@dataclass(frozen=True)
class End:
    """How one start of the run ended."""

    code: int
    hung: str | None = None  # the silence that was too long

    @property
    def reason(self) -> str:
        """In words."""
        if self.hung is not None:
            return f"it hung: {self.hung}"
        return (
            f"it was killed by {signal.Signals(-self.code).name}"
            if self.code < 0
            else f"it ended with exit code {self.code}"
        )


def expected_silence(beat: dict[str, Any], patience: Patience) -> float:
    """How long the run may be silent after this heartbeat."""
    longest = max(patience.silence, patience.steps * beat.get("step_seconds", 0.0)) + beat["every"]
    return longest if beat["doing"] in ("data", "step") and "step_seconds" in beat else longest * patience.long_work


class Watchdog:
    """Keeps the run in `folder` alive. `first` is its command, `again` the one that goes on."""

    def __init__(
        self,
        first: Sequence[str],
        again: Sequence[str],
        folder: Path,
        patience: Patience = USUAL,
        say: Callable[[str], None] = print,
    ) -> None:
        self.first, self.again, self.folder, self.patience, self.shout = first, again, folder, patience, say
        self.stopping: int | None = None  # the signal that asked us to stop
        self.child: subprocess.Popen[bytes] | None = None
        self.family: set[Member] = set()  # all that the child was seen to have started

    def run(self) -> int:
        """Watch until the run is done or cannot be helped; returns the exit code."""
        seen, fruitless, command = self._marks(), 0, self.first
        with on_signals(self._pass_on):
            while True:
                end = self._once(command)
                if end.hung is None and (self.stopping or end.code in (0, EXPLAINED, STOPPED_BY_HAND)):
                    self._say("end", f"{end.reason}; no restart")
                    return end.code if end.code >= 0 else 128 - end.code
                if self.stopping:
                    return 128 + self.stopping
                now = self._marks()
                fruitless = 0 if now - seen else fruitless + 1
                seen |= now
                if fruitless >= self.patience.starts:
                    self._say(
                        "give up", f"{end.reason}; {fruitless} starts in a row without a new checkpoint: giving up"
                    )
                    return end.code if end.code > 0 else 1
                pause = min(self.patience.pause * 2 ** max(fruitless - 1, 0), self.patience.longest_pause)
                self._say("restart", f"{end.reason}; starting it again in {pause:g} s from its last checkpoint")
                if not self._wait(pause):
                    return 128 + (self.stopping or 0)
                command = self.again

    def _once(self, command: Sequence[str]) -> End:
        """Start the run and stay with it to its end."""
        began = time.time()
        # Its own session: Ctrl-C reaches it through us, once, and all that it started can be ended with it.
        child = self.child = subprocess.Popen(command, start_new_session=True)
        self._say("start", f"process {child.pid}: {' '.join(command)}")
        if self.stopping is not None:  # asked to stop between two starts
            child.send_signal(self.stopping)
        self.family, looked = set(), -float("inf")
        while child.poll() is None:
            hung = self._silence(began)
            if hung is not None or time.monotonic() - looked > self.patience.look_around:
                known = {member for member in self.family if lives(member)}
                self.family, looked = known | family(child.pid), time.monotonic()
            if hung is not None:
                self._say("hang", f"{hung}; ending process {child.pid}")
                return End(self._end(child), hung)
            with suppress(subprocess.TimeoutExpired):
                child.wait(self.patience.look)
        if child.returncode:
            self._end_orphans(child)
        return End(child.returncode)

    def _silence(self, began: float) -> str | None:
        """The problem with the heartbeat of the child that began at this time, if there is one."""
        beats = [beat for beat in read_heartbeats(self.folder) if beat["time"] >= began and beat["doing"] != "end"]
        if not beats:
            return None
        newest = max(beats, key=lambda beat: beat["time"])
        silent, expected = time.time() - newest["time"], expected_silence(newest, self.patience)
        if silent <= expected:
            return None
        where = f"step {newest['step']}, {newest['doing']}" if "step" in newest else newest["doing"]
        return f"no sign of life for {silent:.0f} s (at most {expected:.0f} s were expected) since {where}"

    def _end(self, child: subprocess.Popen[bytes]) -> int:
        """End a child that hangs, and all that it started."""
        for number, deadline in ((signal.SIGTERM, self.patience.grace), (signal.SIGKILL, self.patience.grace)):
            self._end_group(child, number)
            with suppress(subprocess.TimeoutExpired):
                child.wait(deadline)
                self._end_group(child)
                return child.returncode
        raise TimeoutError(f"process {child.pid} did not end {self.patience.grace:g} s after SIGKILL")

    def _end_group(self, child: subprocess.Popen[bytes], number: int = signal.SIGKILL) -> None:
        """Signal all that the child started: what is left of a dead run holds its lock and its devices."""
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        if number == signal.SIGKILL:  # anything else its launcher passes on to processes with sessions of their own
            for member in self.family:
                send(member, number)

    def _end_orphans(self, child: subprocess.Popen[bytes]) -> None:
        """End what is left of a child that died: politely at first, because ranks without their launcher still save."""
        deadline = time.monotonic() + self.patience.grace
        for member in self.family:
            send(member, signal.SIGTERM)
        while any(map(lives, self.family)) and time.monotonic() < deadline:
            time.sleep(min(self.patience.look, 0.1))
        self._end_group(child)

    def _wait(self, seconds: float) -> bool:
        """Pause; False if a signal came meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.stopping is None:
            time.sleep(min(self.patience.look, max(deadline - time.monotonic(), 0)))
        return self.stopping is None

    def _marks(self) -> set[str]:
        """Everything below the run's folder that is progress."""
        paths = [*self.folder.glob(f"*/{DONE}"), *self.folder.glob("*/steps/step-*"), *self.folder.glob("steps/step-*")]
        return {str(path) for path in paths if not path.name.endswith(PARTIAL)}

    def _pass_on(self, number: int) -> None:
        """A signal goes to the child."""
        self.stopping = number
        if self.child is not None and self.child.poll() is None:
            self.child.send_signal(number)

    def _say(self, event: str, text: str) -> None:
        """Print a prominent line and append it to watchdog.jsonl; a failed write (full disk) is ignored."""
        self.shout(f"watchdog: {text}")
        line = json.dumps({"time": time.time(), "event": event, "text": text}) + "\n"
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / LOG).open("a", encoding="utf-8") as file:
                file.write(line)
