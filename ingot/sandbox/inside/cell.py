"""Makes the place in which one program runs, and ends with it.

    zygote ── first process of the cell ── the program and all that it starts
              (process 1 of its own process space)

The first process has its own mounts: one file system in memory, limited in bytes and in files, holds the program's folder,
/tmp and /dev/shm; /proc shows the cell's processes alone and cannot be written. It waits for the program, and when it ends
the kernel ends whatever else is left in its process space. The program has no capabilities and a list of system calls that it
may not make (`kernel.py`); the first process gives up the same rights before it forks the program. Without isolation
(`order["isolated"]` is false) the cell is a process group.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys
from typing import Any, NoReturn

from ingot.sandbox.inside import kernel

STORE = "/cell"  # where the file system in memory is mounted first; the bubblewrap command makes the folder
HIGH = 64  # descriptors from here on are out of the way of those that a program is given
NOTE = 2 * HIGH


def enter(order: dict[str, Any], files: list[bytes], descriptors: list[int], note: int) -> int:
    """Make a cell. In the zygote: returns the number of the cell's first process. In the program's process: returns 0.

    `note` is a pipe at a high number: the first process writes how the program ended, or any process what went wrong before.
    """
    first = _fork_into_new_process_space() if order["isolated"] else os.fork()
    if first != 0:
        return first
    try:
        os.setsid()
        if order["isolated"]:
            _mount(order)
            _give_up_rights(order["user"])
        _write_files(order, files)
        _limit(order["limits"])
        if order["isolated"]:
            kernel.filter_system_calls()
        _take_signals()  # before there is a program that could send some
        program = os.fork()  # late: a page that is written before the fork is copied once, and not twice
        if program == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            _take_descriptors(descriptors, note)
    except OSError as error:
        os.write(note, f"error {error}\n".encode())
        os._exit(1)
    if program != 0:  # what happens from here on the program may have caused: it is an end of the program, and no error
        _wait_for(program, note)
    os.close(note)
    return 0


def _fork_into_new_process_space() -> int:
    """The child is process 1 of a new process space; the children that this process forks later are not in it."""
    here = os.pidfd_open(os.getpid())
    kernel.call("unshare", kernel.CLONE_NEWPID)
    child = os.fork()
    if child != 0:
        kernel.call("setns", here, kernel.CLONE_NEWPID)
        os.close(here)
    return child


def _mount(order: dict[str, Any]) -> None:
    """Mount what the program sees besides the sandbox's own files."""
    if order["proc"]:
        _write("/proc/self/oom_score_adj", b"1000", 0)  # if memory runs out, the kernel ends this cell first
    kernel.call("unshare", kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", STORE, "tmpfs", flags, f"size={order['folder']},nr_inodes={order['inodes']},mode=0755")
    for name, target in (("home", order["home"]), ("tmp", "/tmp"), ("shm", "/dev/shm")):
        path = f"{STORE}/{name}"
        os.mkdir(path)
        os.chmod(path, 0o1777)
        for hidden in order["hidden"] if target == "/tmp" else ():  # a Python that lies below /tmp stays where it is
            os.makedirs(f"{STORE}{hidden}")
            kernel.mount(hidden, f"{STORE}{hidden}", None, kernel.MS_BIND | kernel.MS_REC)
        kernel.mount(path, target, None, kernel.MS_BIND | kernel.MS_REC)
    kernel.call("umount2", STORE.encode(), kernel.MNT_DETACH)
    if order["proc"]:
        kernel.mount("proc", "/proc", "proc", flags | kernel.MS_NOEXEC | kernel.MS_RDONLY)


def _wait_for(program: int, note: int) -> NoReturn:
    """The rest of the first process: collect orphans until the program ends, note how, and end with all that is left."""
    os.closerange(0, note)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == program:
            os.write(note, f"status {status}\n".encode())
            os._exit(0)


def _take_signals() -> None:
    """SIGUSR1 becomes a SIGINT for all others. Programs send it too, also when they are the last and have just ended."""
    everyone = -1 if os.getpid() == 1 else 0  # all of the process space, or of this process's group

    def interrupt(_number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(everyone, signal.SIGINT)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, interrupt)


def _give_up_rights(user: int | None) -> None:
    """Become the program's user, without capabilities. It cannot read the memory of this process all the same."""
    kernel.drop_bounding_set()
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    kernel.drop_capabilities()
    kernel.call("prctl", kernel.PR_SET_DUMPABLE, 0, 0, 0, 0)


def _write_files(order: dict[str, Any], files: list[bytes]) -> None:
    os.chdir(order["home"])
    for (name, mode), data in zip(order["files"], files, strict=True):
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        _write(name, data, mode)


def _write(path: str, data: bytes, mode: int) -> None:
    """Write a file by as few steps as there are: each step of Python copies pages that the zygote shares."""
    descriptor = os.open(path, os.O_WRONLY | (os.O_CREAT if mode else 0), mode)
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.close(descriptor)


def _limit(limits: dict[str, int]) -> None:
    """Lower what this process and its children may use; there is no way back up."""
    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        last = most + 1 if name == "RLIMIT_CPU" else most  # SIGXCPU says why, SIGKILL comes a second later
        last = last if hard == resource.RLIM_INFINITY else min(last, hard)
        resource.setrlimit(kind, (min(most, last), last))


def _take_descriptors(descriptors: list[int], note: int) -> None:
    """Have the program's descriptors from 0 on, and the note; close all others."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, HIGH) for descriptor in descriptors]
    for number, descriptor in enumerate(high):
        os.dup2(descriptor, number)
    os.closerange(len(high), note)
    os.closerange(note + 1, note + HIGH)
    if sys.platform == "linux":
        kernel.call("prctl", kernel.PR_SET_DUMPABLE, 1, 0, 0, 0)
