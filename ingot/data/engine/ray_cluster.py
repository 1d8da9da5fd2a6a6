"""The connection to a Ray cluster (`pip install -e ".[ray]"`): for tasks of curation (ray_pool.py) and samplers of RL.

Ray waits for minutes for an address that nobody answers at, so that is tried first. It would end this process at SIGTERM, which
here means to save and stop (workspace/interrupt.py): the handler stays as it was.
"""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
from typing import Any

from ingot.workspace.errors import RecipeError
from ingot.workspace.packages import install_extra

CONNECT_SECONDS = 10.0
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
SHOWN = 300  # characters of a line of an error


def connect(address: str | None, processors: int | None = None) -> tuple[Any, bool]:
    """Ray's module, connected, and whether this call did it: then the caller ends the connection.

    `address` is `auto`, HOST:PORT or `local`: a new cluster on this machine, which None means, too, with so many `processors`.
    """
    try:
        import ray
    except ImportError:
        raise RecipeError("Ray is not installed", place="ray", fix=install_extra("ray")) from None
    if ray.is_initialized():
        return ray, False
    here = address in (None, "local")
    if not here:
        _check(str(address))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address or "local",  # without an address Ray would join whatever cluster it finds running here
            num_cpus=processors if here else None,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": {"PYTHONPATH": ":".join(filter(None, sys.path))}} if here else None,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _unreachable(str(address), error) from error
    if threading.current_thread() is threading.main_thread():  # Ray sets its own in the main thread only, too
        signal.signal(signal.SIGTERM, handler)
    return ray, True


def describe(error: Exception) -> str:
    """An error of Ray's on one line: its kind, the first line of its message, and the last one, which has the cause."""
    lines = [line.strip() for line in COLOURS.sub("", str(error)).splitlines() if line.strip()]
    said = dict.fromkeys([*lines[:1], *lines[-1:]])
    return f"{type(error).__name__}: {' '.join(line[:SHOWN] for line in said)}"


def _check(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or not port.isdigit():
        return  # `auto`, or another form that Ray knows
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> RecipeError:
    return RecipeError(
        f"there is no Ray cluster at {address}: {error}",
        place="ray",
        fix="start one with `ray start --head`, and give its address, or `auto` on one of its machines",
    )
