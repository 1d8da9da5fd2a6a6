"""A child that answers JSON: what is left when it dies in the middle."""

from __future__ import annotations

import sys

import pytest

from ingot.sandbox.json_process import JsonProcess
from tests.making.processes import wait_until


@pytest.mark.parametrize("length", [1, 10**6], ids=["short", "longer than a pipe holds"])
def test_one_that_dies_before_it_reads_can_be_asked_and_closed(length: int) -> None:
    process = JsonProcess([sys.executable, "-c", ""])
    wait_until(lambda: process.ended, 30)
    assert process.ask({"text": "a" * length}, seconds=5) is None
    process.close()
    assert process.ask({}, seconds=5) is None, "closed"
