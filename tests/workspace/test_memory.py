"""Memory that freed arrays leave behind, in a process of its own, where nothing else has touched the heap."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ingot.workspace.memory import malloc_trim

SCRIPT = """
import numpy as np
from ingot.workspace.memory import release_memory, resident
release_memory()
before = resident()
arrays = [np.ones(100_000, np.uint8) for _ in range(2_000)]  # too small for mappings of their own
arrays = arrays[::400]  # a few that stay: the heap cannot shrink from its end
left = resident()
release_memory()
print(left - before, resident() - before)
"""


@pytest.mark.skipif(malloc_trim() is None, reason="only the GNU C library keeps and gives back in this way")
def test_holes_in_the_heap_are_given_back() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    left, after = map(int, ended.stdout.split())
    assert left > 150_000_000  # freed, and yet there: else this test shows nothing
    assert after < 20_000_000
