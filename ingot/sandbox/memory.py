"""How many processes there are below one, and the memory that they and their sockets use together, read from /proc.

Linux limits the memory of each process, or of a control group, which few users may make. So code that runs a program asks here
from time to time, and ends what is too large. Where there is no /proc (macOS) nothing is found.

    of a process    pages in memory or swapped out, those that are shared counted once, and its page tables
    of a socket     the default sizes of both its buffers, which programs cannot raise (`inside/kernel.py`); TCP raises its own,
                    so twice what it holds is added
"""

from __future__ import annotations

from pathlib import Path

BUFFER = 212_992  # of a socket, as Linux has it


def are_above(most: int, found: list[int], network: int | None = None) -> bool:
    """Whether processes hold more than `most` bytes together, with the sockets of the network that `network` is in."""
    sockets = 0 if network is None else _of_sockets(network)
    if sockets + sum(map(_resident, found)) <= most:  # counts shared pages more than once, and is cheap
        return False
    return sockets + sum(map(_proportional, found)) > most


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
    return sum(_fields(f"/proc/{number}/status", b"VmRSS", b"VmSwap", b"VmPTE"))


def _proportional(number: int) -> int:
    """Its pages, each divided by the number of processes that share it; all of them where that may not be read."""
    pages = _fields(f"/proc/{number}/smaps_rollup", b"Pss", b"SwapPss")
    return sum(pages) + sum(_fields(f"/proc/{number}/status", b"VmPTE")) if pages else _resident(number)


def _fields(path: str, *names: bytes) -> list[int]:
    """The bytes of lines like `VmRSS: 12 kB`. The name of the process, which is there too, may be no text."""
    found = (line.partition(b":") for line in _read(path).splitlines())
    return [int(value.split()[0]) * 1024 for name, _, value in found if name in names]


def _of_sockets(number: int) -> int:
    """The bytes that the sockets of a network may hold, Unix sockets and those in flight with them."""
    words = _read(f"/proc/{number}/net/sockstat").split(maxsplit=3)
    used = int(words[2]) if words else 0
    if not used:
        return 0
    each = sum(int(_read(f"/proc/sys/net/core/{name}mem_default") or BUFFER) for name in "rw")
    rows = [row.split() for name in ("tcp", "tcp6") for row in _read(f"/proc/{number}/net/{name}").splitlines()[1:]]
    return used * each + 2 * sum(int(size, 16) for row in rows for size in row[4].split(b":"))


def _read(path: str) -> bytes:
    """Nothing once the process has ended, or where this may not be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
