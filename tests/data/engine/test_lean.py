"""pyarrow and numba without pandas and scipy, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys
from ingot.data.warm import load_lean
load_lean()
import numpy as np
import pyarrow
from ingot.data.native import rotate
table = pyarrow.table({"a": np.arange(3), "b": ["x", None, "z"]})
rotated = int(rotate(np.uint64(1 << 63), 1))
loaded = [name for name in ("pandas", "scipy") if name in sys.modules]
frame = table.to_pandas()
from scipy.linalg import det
print(json.dumps([loaded, rotated, frame["a"].tolist(), det([[1.0, 2.0], [3.0, 4.0]])]))
"""


def test_they_do_without_but_whoever_wants_them_has_them() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=120)
    loaded, rotated, frame, determinant = json.loads(ended.stdout)
    assert loaded == []
    assert rotated == 1
    assert frame == [0, 1, 2]
    assert abs(determinant + 2.0) < 1e-12
