"""The levels of isolation, strongest first, and the commands that set them up.

    bubblewrap    The program sees system libraries and Python, read-only, and an empty folder in memory. It sees no home, no
                  other file, no network, no other process, and has no capabilities. Started by root it is another user.
    namespaces    It has no network and cannot signal other processes. It can read and write what the user can.
    process       It is an ordinary process of the user, within limits.

bubblewrap (`bwrap`) needs user namespaces or root. Containers often refuse both, so `run.py` tries each level once and uses the
first in which a program really runs.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Isolation = Literal["bubblewrap", "namespaces", "process"]
VISIBLE = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
)  # fmt: skip
FOLDER = "/sandbox"  # where the program starts; not /tmp, which may hold the Python that runs it
FOLDER_BYTES = 2**28
FIRST_USER, USERS = 2_000_000_000, 2**27  # numbers that no account has
COUNTED_BY_NAMESPACE = (5, 14)  # since this Linux, RLIMIT_NPROC counts the processes of a user namespace alone
_numbers = itertools.count()


@dataclass(frozen=True)
class Level:
    """A level and how it is reached: the command in front of the program's, and whether the launcher changes the user."""

    isolation: Isolation
    command: tuple[str, ...] = ()
    changes_user: bool = False

    @property
    def counts_processes(self) -> bool:
        """Whether a limit on processes counts the program's alone. Linux never applies it to root."""
        if self.isolation == "process":
            return False
        linux = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
        return self.changes_user or (os.getuid() != 0 and linux >= COUNTED_BY_NAMESPACE)

    def user(self) -> int | None:
        """The number of the user to become, another one for each program: Linux counts processes by user."""
        return FIRST_USER + (os.getpid() * 64 + next(_numbers)) % USERS if self.changes_user else None


def levels() -> list[Level]:
    """All levels that may work on this machine, strongest first."""
    if sys.platform != "linux":
        return [Level("process")]
    found, bwrap = [], shutil.which("bwrap")
    if bwrap is not None:
        for proc in (("--proc", "/proc"), ()):  # a container may refuse to mount /proc
            if os.getuid() == 0:
                found.append(Level("bubblewrap", (*_bubblewrap(bwrap, as_root=True), *proc), changes_user=True))
            found.append(Level("bubblewrap", (*_bubblewrap(bwrap, as_root=False), *proc)))
    return [*found, Level("namespaces"), Level("process")]


def _bubblewrap(bwrap: str, *, as_root: bool) -> list[str]:
    """The command that isolates. Root needs no user namespace; the launcher becomes another user instead."""
    said = subprocess.run([bwrap, "--help"], capture_output=True, text=True, timeout=10, check=False)
    known = said.stdout + said.stderr
    command = [bwrap, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    command += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox", "--cap-drop", "ALL"]
    if as_root:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", *(["--disable-userns"] if "--disable-userns" in known else [])]
    size = ["--size", str(FOLDER_BYTES)] if "--size" in known else []
    command += ["--dev", "/dev", "--chdir", FOLDER]
    for folder in (FOLDER, "/tmp"):
        command += ["--perms", "1777", *size, "--tmpfs", folder]
    python = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)}
    python = {path for path in python if not any(Path(path).is_relative_to(known) for known in VISIBLE)}
    for path in (*VISIBLE, *sorted(python)):
        for parent in reversed(Path(path).parents[:-1]):  # a home that is closed to others is open (and empty) inside
            command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind-try", path, path]
    return command
