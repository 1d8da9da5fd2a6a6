"""Each of flash-linear-attention's kernels has one configuration of its own.

It is no part of the extra `dev`: where it is installed, transformers runs its Triton kernels, also on a CPU.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from ingot.kernels.fla_tuning import MODULES, OTHERS, fix_configurations, tuned_kernels
given = fix_configurations()
assert given is fix_configurations()
for name, kernel in tuned_kernels(MODULES).items():
    (config,) = kernel.configs
    assert config in given[name], kernel
    other = OTHERS.get(name.rpartition(".")[2])
    usual = [c for c in given[name] if c.num_warps == 4 and c.num_stages == (other.stages if other else 3)]
    assert not usual or config in usual, config
    assert other is None or min(config.kwargs.values()) == other.block, config
assert OTHERS.keys() <= {name.rpartition(".")[2] for name in given}
assert max(map(len, given.values())) > 30 and sum(map(len, given.values())) > 200
print(len(given))
"""


def test_there_is_one_configuration() -> None:
    """In a process of its own: the choice is for the whole process."""
    pytest.importorskip("fla", reason="flash-linear-attention is not installed (the extra `linear`)")
    pytest.importorskip("triton", reason="Triton is not installed")
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout) > 15
