"""Kernels compile for a Hopper GPU, fit on it, and multiply with its tensor cores: attention, recurrences, norms, the loss.

The interpreter, in which the kernels' other tests run here, takes programs that the compiler refuses, and knows neither registers
nor shared memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

SHARED = 232_448  # bytes of a multiprocessor that one program can have
SPILLED = 128  # bytes: some registers, once a program; hundreds are a loop over what did not fit
PRODUCTS = {  # kernels that multiply matrices, and how: by groups of four warps where there are 64 rows for them
    ("sparse 32 heads", "forward_kernel"): "HMMA",
    ("sparse 32 heads", "score_gradient_kernel"): "HGMMA",
    ("sparse 32 heads", "query_gradient_kernel"): "HMMA",
    ("sparse 32 heads", "entry_gradient_kernel"): "HGMMA",  # the same for 128
    ("sparse 32 heads", "probability_kernel"): "HMMA",
    ("sparse 128 heads", "forward_kernel"): "HGMMA",
    ("sparse 128 heads", "score_gradient_kernel"): "HGMMA",
    ("sparse 128 heads", "query_gradient_kernel"): "HGMMA",
    ("sparse 128 heads", "probability_kernel"): "HGMMA",
    ("sparse pages", "forward_kernel"): "HGMMA",
    ("choice", "score_kernel"): "HGMMA",
    ("choice", "page_score_kernel"): "HGMMA",
    ("choice", "divergence_kernel"): "HGMMA",
    ("choice", "divergence_backward_kernel"): "HGMMA",
    ("warm-up", "sums_kernel"): "HGMMA",
    ("warm-up", "mean_kernel"): "HGMMA",
    ("warm-up", "query_gradient_kernel"): "HGMMA",
    ("warm-up", "key_gradient_kernel"): "HGMMA",
    ("recurrence", "_states"): "HMMA",
    ("recurrence", "_borders"): "HGMMA",
    ("recurrence", "_parts"): "HGMMA",
    ("recurrence", "_outputs"): "HGMMA",
    ("recurrence", "_value_gradients"): "HGMMA",
    ("recurrence", "_key_gradients"): "HGMMA",
    ("delta rule", "_key_gradients"): "HGMMA",
    ("pages", "latent_kernel"): "HGMMA",
}


Compiled = dict[tuple[str, str], list[dict[str, Any]]]  # by case and kernel: what each of its variants takes


pytestmark = pytest.mark.slow  # a minute of compilation; in `make test` the kernels run in the interpreter


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    pytest.importorskip("triton", reason="Triton is not installed")
    given = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    given["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    script = Path(__file__).with_name("compile_for_hopper.py")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], env=given, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = defaultdict(list)
    for line in ran.stdout.splitlines():
        row = json.loads(line)
        found[row["case"], row["kernel"]].append(row)
    assert len(found) == 42
    return found


def test_kernels_fit(compiled: Compiled) -> None:
    for row in (row for listed in compiled.values() for row in listed):
        assert row["shared"] <= SHARED, row
        assert row["spilled"] <= SPILLED, row


def test_products_are_the_tensor_cores(compiled: Compiled) -> None:
    for name, instruction in PRODUCTS.items():
        assert compiled[name], f"{name} was not compiled"
        for row in compiled[name]:
            assert row[instruction] > 0, row
