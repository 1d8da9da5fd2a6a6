"""What is to run, within which limits, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ingot.sandbox.levels import Isolation

EndedBy = Literal["exit", "signal", "time", "cpu", "memory", "processes", "output"]


@dataclass(frozen=True)
class Program:
    """A command with absolute path, or Python source; its input, and files to write into its folder by relative paths.

    Source is run by a warm interpreter, the one that runs this package, and may import what is installed for it. Besides stdin,
    stdout and stderr a program has descriptor 3: what it writes there is `Outcome.result`, apart from what it prints. `links`
    are more descriptors, which the program has from 4 on (`Pool.run_together`).
    """

    command: tuple[str, ...] = ()
    stdin: bytes = b""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    links: tuple[int, ...] = ()


@dataclass(frozen=True)
class Limits:
    """The limits of a program. `seconds` are of the wall clock, `cpu` of the processor (None: as many); sizes are bytes.

    `memory` is the memory in use by all of its processes together, and the address space of each unless `address_space` says
    otherwise; `folder` and `inodes` are what its files in memory may take. `unsafe` lets it run where nothing isolates it from
    the user's files; otherwise it is refused there.
    """

    seconds: float
    cpu: int | None = None
    memory: int = 2**30
    address_space: int | None = None
    file: int = 2**24
    folder: int = 2**28
    inodes: int = 2**14
    output: int = 2**24
    processes: int = 128
    open_files: int = 256
    unsafe: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a program ended. `exit` is its status, or minus the number of the signal that ended it."""

    exit: int
    stdout: bytes
    stderr: bytes
    result: bytes
    seconds: float
    ended_by: EndedBy
    isolation: Isolation
