"""Each of flash-linear-attention's kernels has one configuration of its own.

It is no part of the extra `dev`: where it is installed, transformers runs its Triton kernels, also on a CPU.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
from ingot.kernels.linear.fla_tuning import (
    CROWDED, FOUND, MODULES, WIDE_KEYS, all_configurations, fix_configurations, tuned_kernels
)
given = all_configurations()
assert max(map(len, given.values())) > 30 and sum(map(len, given.values())) > 200
names = {name.rpartition(".")[2] for name in given}
for rule, width, crowded in (
    ("head", 128, False), ("channel", 64, True), ("head", 256, True), ("channel", 256, False), ("head", 128, True)
):
    fix_configurations(rule, width, crowded=crowded)
    asked = {**FOUND[rule], **(CROWDED if crowded else {}), **(WIDE_KEYS if width > 128 else {})}
    assert asked.keys() <= names, asked.keys() - names
    for name, kernel in tuned_kernels(MODULES).items():
        (config,) = kernel.configs
        assert config in given[name], kernel
        wanted = asked.get(name.rpartition(".")[2])
        if wanted is None:
            usual = [c for c in given[name] if c.num_warps == 4 and c.num_stages == 3]
            assert not usual or config in usual, config
        else:
            # of those with these warps and stages, if it offers any: without a GPU it offers fewer
            same = [c for c in given[name] if (c.num_warps, c.num_stages) == (wanted.warps, wanted.stages)]
            assert not same or config in same, (name, config)
            sizes = wanted.block if isinstance(wanted.block, dict) else dict.fromkeys(config.kwargs, wanted.block)
            exact = [c for c in same if c.kwargs == sizes]
            assert not exact or config in exact, (name, config)
            if name.endswith("kkt_solve_kernel"):  # the usual 4 warps take three times as long
                assert exact and config.num_warps == 1, config
print(len(given))
"""


def test_there_is_one_configuration() -> None:
    """In a process of its own: the choice is for the whole process."""
    pytest.importorskip("fla", reason="flash-linear-attention is not installed (the extra `linear`)")
    pytest.importorskip("triton", reason="Triton is not installed")
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout) > 15
