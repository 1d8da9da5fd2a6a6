"""Read the measured figures, draw them for README and docs/benchmarks.md, and say which are older than their code.

python benchmarks/figures.py

A figure is measured by hand, on a device that CI does not have, so that nothing can keep it up to date; this says what to
measure again, and by which command. The figures stand in figures.yaml; `make reference` writes the tables and the chart from
them.
"""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

ROOT = Path(__file__).parent.parent
FIGURES = Path(__file__).with_suffix(".yaml")
Commit = Annotated[str, Field(pattern="^[0-9a-f]{8,40}$")]


class Headline(BaseModel):
    """A figure in one number beside one peer's, for README: higher is better."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str
    unit: str
    ours: float
    peer: str
    theirs: float

    @property
    def times(self) -> float:
        """How many times the peer's speed ours is."""
        return self.ours / self.theirs


class Figure(BaseModel):
    """One row of the table of docs/benchmarks.md."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    headline: Headline | None = None

    what: str
    ours: str
    peer: str = ""  # in the same run, unless it says otherwise
    aim: str = ""
    device: str
    command: str  # below `python`
    date: datetime.date
    commit: Commit  # in which it was noted
    code: list[str]  # files and folders that it is a figure of

    def cells(self) -> str:
        """The row of the table."""
        how = f"{self.device}, {self.date}, {self.commit}: `{self.command}`"
        return f"| {self.what} | {self.ours} | {self.peer} | {self.aim} | {how} |"


def figures() -> dict[str, Figure]:
    """All figures by name."""
    return TypeAdapter(dict[str, Figure]).validate_python(yaml.safe_load(FIGURES.read_text(encoding="utf-8")))


def figure_table() -> str:
    """The table of docs/benchmarks.md."""
    head = ["| what | ours | fastest peer in the same run | aim | measured |", "|---|---|---|---|---|"]
    return "\n".join(head + [figure.cells() for figure in figures().values()])


def headline_table() -> str:
    """README's table: one number a cell."""
    rows = ["| what | Ingot | fastest peer | times | machine, date |", "|---|---|---|---|---|"]
    for figure in figures().values():
        if short := figure.headline:
            numbers = f"{short.ours:,g} {short.unit} | {short.peer}: {short.theirs:,g} | **{short.times:.2g}**"
            rows.append(f"| {short.what} | {numbers} | {figure.device}, {figure.date}, {figure.commit} |")
    return "\n".join(rows)


def chart() -> str:
    """README's picture of the same rows as SVG: a bar as long as the logarithm of the speed relative to the peer's."""
    shown = [figure.headline for figure in figures().values() if figure.headline]
    longest = max(short.times for short in shown)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {46 + 40 * len(shown)}" font-family="sans-serif">'
    ]
    lines.append('<rect width="100%" height="100%" fill="#ffffff"/>')
    lines.append(
        '<text x="20" y="24" font-size="15" fill="#334155">Times the speed of the fastest peer in the same run</text>'
    )
    for row, short in enumerate(shown):
        top, length = 40 + 40 * row, 20 + 380 * math.log(short.times) / math.log(longest)
        lines += [
            f'<text x="330" y="{top + 19}" font-size="13" text-anchor="end" fill="#334155">{short.what}</text>',
            f'<rect x="342" y="{top + 2}" width="{length:.0f}" height="26" rx="3" fill="#c2410c"/>',
            f'<text x="{350 + length:.0f}" y="{top + 20}" font-size="13" fill="#334155">{short.times:.2g}'
            f" × {short.peer}</text>",
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def changes_since(figure: Figure) -> list[str]:
    """The commits after the figure's that changed its code, newest first."""
    command = ["git", "log", "--oneline", f"{figure.commit}..HEAD", "--", *figure.code]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return found.stdout.splitlines()


def main() -> int:
    """Print every figure with what has changed since."""
    for name, figure in figures().items():
        changes = changes_since(figure)
        print(f"{name}: {figure.date} at {figure.commit}, {len(changes)} changes since: python {figure.command}")
        for line in changes[:3]:
            print(f"    {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
