"""Says which figures of README are older than a change to the code that they are figures of.

python benchmarks/figures.py

A figure is measured by hand, on a device that CI does not have, so that nothing can keep it up to date; this says what to
measure again, and by which command. The figures stand in figures.yaml; `make reference`
writes README's table from them.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

ROOT = Path(__file__).parent.parent
FIGURES = Path(__file__).with_suffix(".yaml")
Commit = Annotated[str, Field(pattern="^[0-9a-f]{8,40}$")]


class Figure(BaseModel):
    """One row of README's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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
    """README's table."""
    head = ["| what | ours | fastest peer in the same run | aim | measured |", "|---|---|---|---|---|"]
    return "\n".join(head + [figure.cells() for figure in figures().values()])


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
