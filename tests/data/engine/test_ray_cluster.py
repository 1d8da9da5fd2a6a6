"""The connection to a Ray cluster: an address at which nobody answers, and what is told of Ray's errors."""

from __future__ import annotations

import socket

import pytest

from ingot.data.engine.ray_cluster import connect, describe
from ingot.workspace.errors import RecipeError

pytest.importorskip("ray")


def test_an_address_without_a_cluster_is_an_error_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # not listened to
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(RecipeError, match=f"there is no Ray cluster at {address}") as raised:
            connect(address)
    assert raised.value.fix is not None and "ray start --head" in raised.value.fix


def test_an_error_on_one_line() -> None:
    """Colours and the traceback are left out; kind, first line and cause stay."""
    text = "\x1b[36mray::A.run()\x1b[39m (pid=1)\n  File 'a.py', line 3\n\nModuleNotFoundError: No module named 'b'\n"
    assert describe(ValueError(text)) == "ValueError: ray::A.run() (pid=1) ModuleNotFoundError: No module named 'b'"
    assert describe(ValueError("one")) == "ValueError: one" and describe(ValueError()) == "ValueError: "
