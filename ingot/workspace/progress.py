"""Live progress: a rich display in a terminal, one line that changes in a notebook, plain lines elsewhere.

A stage calls `progress.start(total)`, then `progress.advance(step, loss=…, rate=…)`, and `progress.say(text)` for
anything worth a line. It never needs to know where the output goes.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ingot.workspace.output import go_on_without_output

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PLAIN_INTERVAL_SECONDS = 10.0
NOTEBOOK_INTERVAL_SECONDS = 1.0
NOTEBOOK_LINES = 20


def format_values(values: dict[str, Any]) -> str:
    """`loss 2.31 · tokens/s 4,210` from numbers by name."""
    return " · ".join(f"{name} {format_number(value)}" for name, value in values.items())


def format_number(value: Any) -> str:
    """Four significant digits, thousands separated; anything else unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_seconds(seconds: float) -> str:
    """`3.2 s`, `4:05`, `2:03:10`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Pace:
    """How fast a counter grows: a second, over the last few seconds."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, count: int) -> float:
        """The speed, now that the counter is at `count`."""
        now = time.monotonic()
        if not self._seen or now - self._seen[-1][0] > self.seconds / 100:  # steps may be many
            self._seen.append((now, count))
        while now - self._seen[0][0] > self.seconds and len(self._seen) > 1:
            self._seen.popleft()
        began, first = self._seen[0]
        return (count - first) / max(now - began, self.seconds / 100)


class Progress:
    """Silent progress: the base class, used from Python and in tests."""

    def stage(self, name: str, number: int, count: int) -> None:
        """A new stage begins."""

    def start(self, total: int, unit: str = "step", done: int = 0) -> None:
        """A loop of `total` units begins, `done` of which are already there."""

    def advance(self, done: int, **values: Any) -> None:
        """`done` units are finished; `values` are shown next to the bar."""

    def say(self, text: str) -> None:
        """A line that stays on the screen."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""


class PlainProgress(Progress):
    """Lines for logs and pipes: one at the start of a stage, then one every few seconds."""

    def __init__(self, interval: float = PLAIN_INTERVAL_SECONDS) -> None:
        self.interval = interval
        self.name, self.total, self.unit = "", 0, "step"
        self.began = self.printed = time.monotonic()
        self.offset = 0

    def stage(self, name: str, number: int, count: int) -> None:
        self.name = name
        self.say(f"stage {number} of {count}")

    def start(self, total: int, unit: str = "step", done: int = 0) -> None:
        self.total, self.unit, self.offset = total, unit, done
        self.began = self.printed = time.monotonic()

    def advance(self, done: int, **values: Any) -> None:
        now = time.monotonic()
        if now - self.printed < self.interval and done != self.total:
            return
        self.printed = now
        parts = [f"{self.unit} {done:,}/{self.total:,}", format_values(values)]
        if done > self.offset:  # else nothing is known of the speed
            left = (now - self.began) / (done - self.offset) * (self.total - done)
            parts.append(f"left {format_seconds(left)}")
        self.update(" · ".join(part for part in parts if part))

    def update(self, text: str) -> None:
        """How far the loop is."""
        self.say(text)

    def say(self, text: str) -> None:
        try:
            print(f"[{self.name}] {text}" if self.name else text, flush=True)
        except OSError as error:
            go_on_without_output(error)


class TerminalProgress(Progress):
    """A live bar with stage, step, values, speed and time left."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.name = ""
        self.task: TaskID | None = None
        self.bar: RichProgress = RichProgress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[values]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            transient=True,
        )
        self.bar.start()

    def stage(self, name: str, number: int, count: int) -> None:
        self.name = f"{number}/{count} {name}"
        self._replace_task(total=None)

    def start(self, total: int, unit: str = "step", done: int = 0) -> None:
        self._replace_task(total=total, completed=done)

    def _replace_task(self, total: int | None, completed: int = 0) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(self.name, total=total, completed=completed, values="")

    def advance(self, done: int, **values: Any) -> None:
        if self.task is not None:
            self.bar.update(self.task, completed=done, values=format_values(values))

    def say(self, text: str) -> None:
        from rich.text import Text

        name = Text(f"{self.name} " if self.name else "", style="bold")
        self.bar.console.print(name + Text(text, style="not bold"))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()


class NotebookProgress(PlainProgress):
    """One line below the cell, written over as the work goes on; what is worth a line of its own stands above it."""

    def __init__(self, interval: float = NOTEBOOK_INTERVAL_SECONDS) -> None:
        from IPython.display import display

        super().__init__(interval)
        self.lines: list[str] = []
        self.handle = display({"text/plain": ""}, raw=True, display_id=True)

    def stage(self, name: str, number: int, count: int) -> None:
        self.name = name

    def update(self, text: str) -> None:
        self._show([*self.lines, text])

    def say(self, text: str) -> None:
        self.lines = [*self.lines, text][-NOTEBOOK_LINES:]
        self._show(self.lines)

    def _show(self, lines: list[str]) -> None:
        self.handle.update({"text/plain": "\n".join(f"[{self.name}] {line}" for line in lines)}, raw=True)


def in_notebook() -> bool:
    """Whether this program is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell is not None and hasattr(shell, "kernel")


def make_progress() -> Progress:
    """The live display if standard output is a terminal, a line that changes in a notebook, plain lines otherwise."""
    if in_notebook():
        return NotebookProgress()
    return TerminalProgress() if sys.stdout.isatty() else PlainProgress()
