"""Few of flash-linear-attention's configurations are tried, and these are its own.

It is no part of the extra `dev`: where it is installed, transformers runs its Triton kernels, also on a CPU.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from ingot.kernels.fla_tuning import FEW, try_few, tuned_kernels
before = {id(kernel): list(kernel.configs) for kernel in tuned_kernels()}
try_few()
for kernel in tuned_kernels():
    given = before[id(kernel)]
    assert len(kernel.configs) == min(FEW, len(given)) and all(config in given for config in kernel.configs), kernel
    usual = [c for c in given if c.num_warps == 4 and c.num_stages == 3]
    assert not usual or kernel.configs[0] in usual, kernel.configs
assert max(map(len, before.values())) > 30 and sum(map(len, before.values())) > 200
print(len(before))
"""


def test_few_are_tried_and_the_usual_one_first() -> None:
    """In a process of its own: the choice is for the whole process."""
    pytest.importorskip("fla", reason="flash-linear-attention is not installed (the extra `linear`)")
    pytest.importorskip("triton", reason="Triton is not installed")
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout) > 15
