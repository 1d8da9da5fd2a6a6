"""A child that answers JSON: what is left when it dies in the middle."""

from __future__ import annotations

import sys
import time

import pytest

from ingot.sandbox.json_process import JsonProcess


@pytest.mark.parametrize("length", [1, 10**6], ids=["short", "longer than a pipe holds"])
def test_one_that_dies_before_it_reads_can_be_asked_and_closed(length: int) -> None:
    process = JsonProcess([sys.executable, "-c", ""])
    deadline = time.monotonic() + 30
    while not process.ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.ended
    assert process.ask({"text": "a" * length}, seconds=5) is None
    process.close()
    assert process.ask({}, seconds=5) is None, "closed"
