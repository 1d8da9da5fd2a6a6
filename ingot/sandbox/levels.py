"""The two levels of isolation, and the bubblewrap command.

    bubblewrap    The program sees system libraries and Python, read-only, and an empty folder in memory. It sees no home, no
                  other file, no network, no other process, and has no capabilities. Started by root it is another user.
    process       It is an ordinary process of the user, within limits: it can read and write what the user can. A program runs
                  like this only if `Limits.unsafe` says so.

bubblewrap (`bwrap`) needs user namespaces or root. Containers often refuse both, so each way is tried once and the first in
which a program really runs is used.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Isolation = Literal["bubblewrap", "process"]
VISIBLE = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime",
    *sorted(map(str, Path("/etc").glob("java-*-openjdk"))),  # where Debian keeps a part of Java
)  # fmt: skip
FOLDER = "/sandbox"  # where the program starts; not /tmp, which may hold the Python that runs it
INSIDE = Path(__file__).with_name("inside")
PACKAGE = "/ingot-inside"  # the folder in a sandbox from which `ingot.sandbox.inside` is imported
FIRST_USER, USERS = 2_000_000_000, 2**27  # numbers that no account has
COUNTED_BY_NAMESPACE = (5, 14)  # since this Linux, RLIMIT_NPROC counts the processes of a user namespace alone
_numbers = itertools.count()


@dataclass(frozen=True)
class Level:
    """A level and how it is reached: the command in front of the zygote's, and whether programs change the user."""

    isolation: Isolation
    command: tuple[str, ...] = ()
    changes_user: bool = False
    mounts_proc: bool = False

    @property
    def package(self) -> str:
        """The folder from which the zygote imports its code."""
        return PACKAGE if self.isolation == "bubblewrap" else str(INSIDE.parents[2])

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


def python_folders() -> list[str]:
    """The folders of the Python that runs this, and that programs see besides the system's."""
    python = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)}
    return sorted(path for path in python if not any(Path(path).is_relative_to(known) for known in VISIBLE))


def levels() -> list[Level]:
    """All levels that may work on this machine, strongest first."""
    if sys.platform != "linux":
        return [Level("process")]
    found, bwrap = [], shutil.which("bwrap")
    if bwrap is not None:
        for proc in (True, False):  # a container may refuse to mount /proc
            for as_root in (True, False) if os.getuid() == 0 else (False,):
                command = tuple(_bubblewrap(bwrap, as_root=as_root, proc=proc))
                found.append(Level("bubblewrap", command, changes_user=as_root, mounts_proc=proc))
    return [*found, Level("process")]


def _bubblewrap(bwrap: str, *, as_root: bool, proc: bool) -> list[str]:
    """The command that isolates. Root needs no user namespace; programs become another user instead.

    The capabilities are the zygote's, to make cells (`inside/cell.py`); no program has them. There is no --die-with-parent: the
    kernel would take the end of the thread that started it for that of its parent. The zygote ends when its socket closes, and
    because it is process 1 everything in the sandbox ends with it.
    """
    command = [bwrap, "--new-session", "--as-pid-1", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    command += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox", "--cap-drop", "ALL"]
    command += ["--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
    if as_root:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_KILL"]
    else:
        command += ["--unshare-user"]
    command += ["--proc", "/proc"] if proc else []
    for folder in ("/cell", "/tmp", "/dev/shm", FOLDER):
        command += ["--dir", folder]
    for device in ("null", "full", "random", "urandom"):  # --dev would add a user namespace around the zygote's
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    command += ["--dev-bind", "/dev/full", "/dev/zero"]  # reads as zeros too, and is no memory that can be shared
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        command += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]
    for path in (*VISIBLE, *python_folders()):
        for parent in reversed(Path(path).parents[:-1]):  # a home that is closed to others is open (and empty) inside
            command += ["--perms", "0755", "--dir", str(parent)]
        command += ["--ro-bind-try", path, path]
    command += ["--ro-bind", str(INSIDE), f"{PACKAGE}/ingot/sandbox/inside"]
    return [*command, "--symlink", "/proc/self/fd", "/dev/fd", "--remount-ro", "/", "--chdir", "/"]
