"""The first process inside a sandbox: sets the limits, then becomes the program. Standard library only.

`run.py` starts it as `python -c SOURCE LENGTH`, so that no file of the package has to be visible inside. The first LENGTH bytes
of stdin are a JSON object (see `run.Order`); what follows them is the program's own input.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from pathlib import Path

CLONE_NEWUTS, CLONE_NEWIPC = 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
FAILED = 125  # the exit status if the sandbox itself cannot be set up


def read(count: int) -> bytes:
    """Exactly `count` bytes of stdin: the rest is the program's."""
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            sys.exit(FAILED)
        data += part
    return data


def limit(limits: dict[str, int]) -> None:
    """Lower what this process and its children may use; there is no way back up."""
    for name, most in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        last = most + 1 if name == "RLIMIT_CPU" else most  # SIGXCPU says why, SIGKILL comes a second later
        last = last if hard == resource.RLIM_INFINITY else min(last, hard)
        resource.setrlimit(kind, (min(most, last), last))


def enter_namespaces() -> None:
    """Leave the network, and go on in a process namespace that the kernel ends with its first process.

    That first process is a child which only waits for a grandchild, so that the program finds signals and orphans as usual.
    """
    if ctypes.CDLL(None).unshare(NAMESPACES) != 0:
        sys.exit(FAILED)
    go_on_in_child()
    go_on_in_child()


def go_on_in_child() -> None:
    """Returns in a new process; this one waits for it, and ends as it does."""
    child = os.fork()
    if child == 0:
        return
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0 and os.getpid() != 1:  # the first process of a namespace cannot end itself by a signal
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def main() -> None:
    """Set up what is asked for, then become the program."""
    order = json.loads(read(int(sys.argv[1])))
    if order["namespaces"]:
        enter_namespaces()
    if order["user"] is not None:
        os.setgroups([])
        os.setgid(order["user"])
        os.setuid(order["user"])  # gives up every capability
    for name, text in order["files"].items():
        Path(name).write_text(text, encoding="utf-8")
    limit(order["limits"])
    os.execve(order["command"][0], order["command"], order["environment"])


if __name__ == "__main__":
    main()
