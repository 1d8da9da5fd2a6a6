"""Finds all processes that a command has started, also those in other sessions, which a signal to its group does not reach.

Launchers (torchrun, `--processes`) give every rank a session of its own. Those of a launcher that was killed live on, and hold
the run's lock and its devices. To end them, they must have been found while their parents lived: an orphan has no parent
that tells where it came from. A process is identified by its number and its start time, because numbers are used again.

This works on Linux only (/proc); elsewhere only the group is known.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROCESSES = Path("/proc")
STATE, PARENT, BEGAN = 0, 1, 19  # indices of the fields in /proc/NUMBER/stat, after the name


@dataclass(frozen=True)
class Member:
    """One process: its number, and its start time in ticks since boot."""

    pid: int
    began: int


def family(pid: int) -> set[Member]:
    """The processes below process `pid`, at any depth."""
    children: dict[int, list[Member]] = {}
    for entry in PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it may have ended meanwhile
            fields = _fields(int(entry.name))
            children.setdefault(int(fields[PARENT]), []).append(Member(int(entry.name), int(fields[BEGAN])))
    found: set[Member] = set()
    below = list(children.get(pid, []))
    while below:
        member = below.pop()
        found.add(member)
        below += children.get(member.pid, [])
    return found


def lives(member: Member) -> bool:
    """Whether a process has not ended yet."""
    try:
        fields = _fields(member.pid)
    except OSError:
        return False
    return int(fields[BEGAN]) == member.began and fields[STATE] != "Z"


def send(member: Member, number: int) -> None:
    """Signal a process, if its number still belongs to it."""
    if lives(member):
        with suppress(OSError):
            os.kill(member.pid, number)


def _fields(pid: int) -> list[str]:
    return (PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
