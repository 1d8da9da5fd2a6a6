"""The kernels in Triton's interpreter, on the CPU: TRITON_INTERPRET=1 python -m pytest tests/inference/fused"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

from tests.inference.fused.cases import CASES, Case, check

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs triton, and TRITON_INTERPRET=1 when it is first imported",
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_like_the_definition(case: Case) -> None:
    check(case, torch.float32, "cpu", 2e-5)
