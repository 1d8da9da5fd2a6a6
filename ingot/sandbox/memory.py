"""How many processes there are below one, and the memory that they use together, read from /proc.

Linux limits the memory of each process, or of a control group, which few users may make. So code that runs a program asks here
from time to time, and ends what is too large. Where there is no /proc (macOS) nothing is found.
"""

from __future__ import annotations

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def are_above(most: int, found: list[int]) -> bool:
    """Whether processes hold more than `most` bytes together. Pages that they share are counted once."""
    if sum(map(_resident, found)) <= most:  # counts shared pages more than once, and is cheap
        return False
    return sum(map(_proportional, found)) > most


def descendants(root: int) -> list[int]:
    """`root` and every process below it. Orphans of a process space stay below its first process."""
    found, waiting = [], [root]
    while waiting:
        number = waiting.pop()
        found.append(number)
        try:
            for task in Path(f"/proc/{number}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:  # it has ended
            continue
    return found


def _resident(number: int) -> int:
    try:
        return int(Path(f"/proc/{number}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def _proportional(number: int) -> int:
    """Its pages, each divided by the number of processes that share it; all of them where that may not be read."""
    try:
        for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except PermissionError:
        return _resident(number)
    except OSError:
        pass
    return 0
