"""The Linux calls that Python's standard library lacks: namespaces, mounts, capabilities, system-call filters.

The filter is a list for the kernel's BPF machine (`man 2 seccomp`). It refuses what no ordinary program needs and

    what kernels have been broken through       tracing, mounting, new namespaces, keys, BPF, io_uring, userfaultfd, performance
                                                events, sockets other than Unix and Internet ones (EPERM)
    memory that nobody sees                     what belongs to no process and no file of the cell: memfd, System V, shared and
                                                anonymous, pages given to a pipe, larger socket buffers, queues of the kernel
    what reaches other users of a system file   inotify, fanotify, F_NOTIFY, leases, flock

Calls of the last two are answered as by a kernel that lacks them (ENOSYS), so that programs take another way.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
NEW_NAMESPACE = 0x7E020080  # every CLONE_NEW… flag that clone takes
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MNT_DETACH = 1, 2, 4, 8, 4096, 16384, 2
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 22, 24, 38
SECCOMP_MODE_FILTER = 2
ZYGOTE_CAPABILITIES = (
    5,
    6,
    7,
    8,
    21,
)  # kill, setgid, setuid, setpcap, sys_admin: see the bubblewrap command in levels.py
CAPABILITY_VERSION = 0x20080522

REFUSED = {  # name: (number on x86-64, number on aarch64)
    "ptrace": (101, 117), "syslog": (103, 116), "mount": (165, 40), "umount2": (166, 39), "swapon": (167, 224),
    "reboot": (169, 142), "pivot_root": (155, 41), "chroot": (161, 51), "acct": (163, 89), "init_module": (175, 105),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "unshare": (272, 97), "setns": (308, 268),
    "perf_event_open": (298, 241), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "finit_module": (313, 273),
    "kexec_file_load": (320, 294), "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsmount": (432, 432), "pidfd_getfd": (438, 438), "mount_setattr": (442, 442),
}  # fmt: skip
ABSENT = {  # an old call of x86-64 that aarch64 never had is None there
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180), "vmsplice": (278, 75), "io_setup": (206, 0), "inotify_init": (253, None),
    "inotify_init1": (294, 26), "fanotify_init": (300, 262), "flock": (73, 32),
    "clone3": (435, 435),  # its flags cannot be read: libc then uses clone
}  # fmt: skip
CLONE, SOCKET, MMAP, FCNTL, SETSOCKOPT = (56, 220), (41, 198), (9, 222), (72, 25), (54, 208)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # its column above, its number for the kernel
X32 = 0x40000000  # the second table of numbers of an x86-64 kernel
SOCKET_FAMILIES = (1, 2, 10)  # Unix, IPv4, IPv6
SHARED_ANONYMOUS = (
    0x21  # MAP_SHARED | MAP_ANONYMOUS: what is unmapped of it stays in memory, and no process is charged for it
)
LEASES_AND_NOTES = (1024, 1026, 1040)  # F_SETLEASE, F_NOTIFY, F_SETDELEG
SOL_SOCKET, BUFFER_SIZES = 1, (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, and each with FORCE
EPERM, ENOMEM, ENOSYS, EAFNOSUPPORT = 1, 12, 38, 97

_libc = ctypes.CDLL(None, use_errno=True)
if sys.platform == "linux":
    for _name in ("mount", "umount2", "unshare", "setns", "prctl", "capset"):
        getattr(_libc, _name)  # looked up once, and not in each cell


def call(name: str, *arguments: int | bytes | None) -> None:
    """Call a function of the C library that answers with -1 for an error, which is raised."""
    if getattr(_libc, name)(*(ctypes.c_long(item) if isinstance(item, int) else item for item in arguments)) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """mount(2)."""
    call("mount", source.encode(), target.encode(), kind and kind.encode(), flags, options.encode() or None)  # type: ignore[arg-type]


def drop_bounding_set() -> None:
    """No program that this process starts can have a capability, not even as root of a user namespace."""
    for number in ZYGOTE_CAPABILITIES:
        call("prctl", PR_CAPBSET_DROP, number, 0, 0, 0)


def drop_capabilities() -> None:
    """Give up every capability."""
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header, none = struct.pack("=Ii", CAPABILITY_VERSION, 0), bytes(24)
    call("capset", header, none)


def filter_system_calls() -> None:
    """Refuse the system calls above to this process and all that it starts. Other machines than those above: no filter."""
    if not FILTER:
        return
    code = ctypes.create_string_buffer(FILTER, len(FILTER))
    head = struct.pack("HxxxxxxP", len(FILTER) // 8, ctypes.addressof(code))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head, 0, 0)


Step = tuple[int, int, int, int]  # code, steps to skip if it is true, and if it is not, value
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, GIVE = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000


def _program(column: int, architecture: int) -> bytes:
    """The filter: loads of the system call's record (number at 0, architecture at 4, arguments from 16), jumps, returns."""
    steps: list[Step] = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, architecture), (GIVE, 0, 0, KILL), (LOAD, 0, 0, 0)]
    if column == 0:
        steps += [(AT_LEAST, 0, 1, X32), (GIVE, 0, 0, ERRNO | ENOSYS)]
    steps += _when(SOCKET[column], _argument(0), _none_of(SOCKET_FAMILIES, EAFNOSUPPORT))
    steps += _when(CLONE[column], _argument(0), [(ANY_BIT, 0, 1, NEW_NAMESPACE), (GIVE, 0, 0, ERRNO | EPERM)])
    shared = [(AND, 0, 0, SHARED_ANONYMOUS), *_any_of((SHARED_ANONYMOUS,), ENOMEM)]
    steps += _when(MMAP[column], _argument(3), shared)
    steps += _when(FCNTL[column], _argument(1), _any_of(LEASES_AND_NOTES, EPERM))
    level = [(EQUAL, 1, 0, SOL_SOCKET), (GIVE, 0, 0, ALLOW)]
    sizes = [*level, *_argument(2), *_any_of(BUFFER_SIZES, 0)]  # no error: sizes are wishes, which Linux cuts to a most
    steps += _when(SETSOCKOPT[column], _argument(1), sizes)
    for calls, error in ((REFUSED, EPERM), (ABSENT, ENOSYS)):
        numbers = [pair[column] for pair in calls.values()]
        steps += _any_of([number for number in numbers if number is not None], error)
    return b"".join(struct.pack("HBBI", *step) for step in [*steps, (GIVE, 0, 0, ALLOW)])


def _when(number: int, load: list[Step], steps: list[Step]) -> list[Step]:
    """Steps for one system call, which is allowed if they do not say otherwise."""
    block = [*load, *steps, (GIVE, 0, 0, ALLOW)]
    return [(EQUAL, 0, len(block), number), *block]


def _argument(index: int) -> list[Step]:
    """Load the lower half of an argument; the machines above put it first."""
    return [(LOAD, 0, 0, 16 + 8 * index)]


def _any_of(values: Sequence[int], error: int) -> list[Step]:
    """An error if the loaded value is one of these."""
    return [step for value in values for step in ((EQUAL, 0, 1, value), (GIVE, 0, 0, ERRNO | error))]


def _none_of(values: Sequence[int], error: int) -> list[Step]:
    """An error if the loaded value is none of these."""
    return [
        *((EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)),
        (GIVE, 0, 0, ERRNO | error),
    ]


_machine = os.uname().machine
FILTER = _program(*MACHINES[_machine]) if _machine in MACHINES and sys.maxsize > 2**32 else b""
