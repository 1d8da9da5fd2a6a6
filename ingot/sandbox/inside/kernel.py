"""The Linux calls that Python's standard library lacks: namespaces, mounts, capabilities, system-call filters.

The filter is a list for the kernel's BPF machine (`man 2 seccomp`). It refuses with EPERM what no ordinary program needs and
what kernels have been broken through: tracing, mounting, new namespaces, keys, BPF, io_uring, userfaultfd, performance events,
and sockets other than Unix and Internet ones.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

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
CLONE, CLONE3, SOCKET = (56, 220), (435, 435), (41, 198)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # its column above, its number for the kernel
X32 = 0x40000000  # the second table of numbers of an x86-64 kernel
SOCKET_FAMILIES = (1, 2, 10)  # Unix, IPv4, IPv6
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97

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


def _program(column: int, architecture: int) -> bytes:
    """The filter: loads of the system call's record (number at 0, architecture at 4, arguments from 16), jumps, returns."""
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    kill, allow, errno = 0x80000000, 0x7FFF0000, 0x00050000
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, kill), (load, 0, 0, 0)]
    if column == 0:
        steps += [(at_least, 0, 1, X32), (give, 0, 0, errno | ENOSYS)]
    for numbers in REFUSED.values():
        steps += [(equal, 0, 1, numbers[column]), (give, 0, 0, errno | EPERM)]
    steps += [
        (equal, 0, 1, CLONE3[column]),
        (give, 0, 0, errno | ENOSYS),
    ]  # its flags cannot be read: libc then uses clone
    steps += [(equal, 0, 4, CLONE[column]), (load, 0, 0, 16), (any_bit, 0, 1, NEW_NAMESPACE)]
    steps += [(give, 0, 0, errno | EPERM), (give, 0, 0, allow)]
    steps += [(equal, 0, 3 + len(SOCKET_FAMILIES), SOCKET[column]), (load, 0, 0, 16)]
    steps += [(equal, len(SOCKET_FAMILIES) - index, 0, family) for index, family in enumerate(SOCKET_FAMILIES)]
    steps += [(give, 0, 0, errno | EAFNOSUPPORT), (give, 0, 0, allow), (give, 0, 0, allow)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


_machine = os.uname().machine
FILTER = _program(*MACHINES[_machine]) if _machine in MACHINES and sys.maxsize > 2**32 else b""
