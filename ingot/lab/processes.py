"""Runs jobs side by side, each in a process of its own, within a hard limit of time.

A job that its process does not survive (killed by a signal: no memory) is started once more; one that ends with an error is
not, because it would end so again. Whoever is told to stop saves and ends at its next step, and is killed after FAREWELL:
nothing on disk is ever half written. A process whose laboratory is gone stops by itself (worker.py), and holds the lock of the
run folder until then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ingot.workspace.errors import Interrupted
from ingot.workspace.interrupt import StopSignal

POLL, FAREWELL = 0.2, 60.0
STARTS = 2
INTERRUPTED = 3  # exit code of a worker that was told to stop and has saved
TAIL = 2000  # bytes of a log that may hold the error

End = Literal["done", "failed", "pruned", "over the budget"]


@dataclass(frozen=True)
class LabJob:
    """A command, where its log goes, and when it is hopeless (the reason, or None)."""

    name: str
    command: Sequence[str]
    log: Path
    hopeless: Callable[[], str | None] = lambda: None


@dataclass(frozen=True)
class EndedRun:
    """How a job ended."""

    job: LabJob
    end: End
    seconds: float
    why: str = ""


@dataclass
class _Running:
    job: LabJob
    slot: int
    starts: int = 1
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0  # of earlier starts
    process: subprocess.Popen[bytes] | None = None
    told: float | None = None  # when it was told to stop
    reason: tuple[End, str] | None = None  # why it was told

    @property
    def spent(self) -> float:
        return self.seconds + time.monotonic() - self.began


class RunPool:
    """So many processes at a time. `seconds` is all that they may take together; `tick` is told what they have taken."""

    def __init__(
        self,
        slots: int,
        *,
        stop: StopSignal,
        seconds: float | None = None,
        inherit: Sequence[int] = (),
        environment: Callable[[int], dict[str, str]] = lambda slot: {},
        tick: Callable[[float], object] = lambda seconds: None,
    ) -> None:
        self.slots, self.stop, self.seconds, self.inherit = slots, stop, seconds, tuple(inherit)
        self.environment, self.tick = environment, tick
        self.running: list[_Running] = []
        self.ended_seconds = 0.0

    @property
    def spent(self) -> float:
        """Seconds of all processes so far."""
        return self.ended_seconds + sum(each.spent for each in self.running)

    def run(self, jobs: Sequence[LabJob]) -> Iterator[EndedRun]:
        """Run all jobs, in order; yields each as it ends. After a stop it raises `Interrupted`, when all have saved and ended."""
        waiting = list(jobs)
        try:
            while waiting or self.running:
                over = self.seconds is not None and self.spent >= self.seconds
                if self.stop.requested or over:
                    yield from (EndedRun(job, "over the budget", 0.0) for job in waiting if not self.stop.requested)
                    waiting = []
                    for each in self.running:
                        self._tell(each, ("over the budget", ""))
                while waiting and len(self.running) < self.slots:
                    self._start(waiting.pop(0))
                time.sleep(POLL)
                self.tick(self.spent)
                for each in list(self.running):
                    if (ended := self._look(each)) is not None:
                        yield ended
        finally:
            self._end_all()
        if self.stop.requested:
            raise Interrupted("stopped; what each run has done is saved")

    def _start(self, job: LabJob) -> None:
        slot = min(set(range(self.slots)) - {each.slot for each in self.running})
        running = _Running(job, slot)
        self.running.append(running)
        self._spawn(running)

    def _spawn(self, running: _Running) -> None:
        running.job.log.parent.mkdir(parents=True, exist_ok=True)
        with running.job.log.open("ab") as log:
            running.process = subprocess.Popen(
                running.job.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=self.inherit,
                start_new_session=True,  # Ctrl-C is for the laboratory, which tells its processes
                env={**os.environ, **self.environment(running.slot)},
            )

    def _look(self, running: _Running) -> EndedRun | None:
        """What became of a process, if it has ended; tell it to stop if it is hopeless, kill it if it does not listen."""
        assert running.process is not None
        code = running.process.poll()
        if code is None:
            if running.told is None and (why := running.job.hopeless()) is not None:
                self._tell(running, ("pruned", why))
            elif running.told is not None and time.monotonic() - running.told > FAREWELL:
                _signal(running.process, signal.SIGKILL)
            return None
        if code < 0 and running.told is None and running.starts < STARTS:
            running.seconds, running.began = running.spent, time.monotonic()
            running.starts += 1
            self._spawn(running)
            return None
        self.running.remove(running)
        self.ended_seconds += running.spent
        if code == 0:
            return EndedRun(running.job, "done", running.spent)
        if running.reason is not None and not self.stop.requested:
            return EndedRun(running.job, running.reason[0], running.spent, running.reason[1])
        if self.stop.requested:
            return None
        died = f"killed by {signal.Signals(-code).name}, twice" if code < 0 else _last_words(running.job.log)
        return EndedRun(running.job, "failed", running.spent, died)

    def _tell(self, running: _Running, reason: tuple[End, str]) -> None:
        if running.told is None and running.process is not None:
            running.told, running.reason = time.monotonic(), reason
            _signal(running.process, signal.SIGTERM)

    def _end_all(self) -> None:
        """Leave no process behind, whatever was raised."""
        for each in self.running:
            self._tell(each, ("over the budget", ""))
        until = time.monotonic() + FAREWELL
        for each in self.running:
            assert each.process is not None
            try:
                each.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal(each.process, signal.SIGKILL)
                each.process.wait(FAREWELL)
        self.running = []


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _last_words(log: Path) -> str:
    """The error at the end of a log, without the progress before it."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    start = next((n for n in range(len(lines) - 1, -1, -1) if lines[n].startswith("error: ")), len(lines) - 1)
    return "\n".join(lines[start:]) if lines else "it left no word"
