"""One token of the recurrences in place of the cache, against the definitions in float64.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_recurrent_step.py
"""

from __future__ import annotations

import os

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ingot.kernels.linear.recurrent_step import WIDEST, step_kernel_allowed
from tests.kernels.recurrence_cases import KINDS, make_recurrence

triton = pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.linear.recurrent_step_kernel import launch  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("groups", "heads", "key_width", "value_width"), [(2, 4, 32, 48), (1, 1, 20, 5)])
@torch.no_grad()
def test_like_the_definition(kind: str, groups: int, heads: int, key_width: int, value_width: int) -> None:
    """In shuffled slots; a row at position 0 forgets what its slot held; other slots stay as they are."""
    groups = heads if kind == "channel" else groups
    case = make_recurrence(kind, (3,), groups, heads, key_width, value_width, device=DEVICE)
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(6, heads, key_width, value_width, generator=generator).to(DEVICE)
    slots, positions = torch.tensor([4, 0, 3], device=DEVICE), torch.tensor([[7], [0], [1]], device=DEVICE)
    inputs = [x.detach() for x in case.inputs]
    before = states[slots].double()
    before[1] = 0
    exact = [x.double() for x in inputs]
    if kind == "head":
        exact[3] = exact[3][..., None]
    expected, after = case.rule.step(*exact, before)
    untouched = states[[1, 2, 5]].clone()
    query, key, value, decay, *beta = inputs
    found = launch(states, slots, positions[:, 0], query, key, value, decay, beta[0] if beta else None)
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(states[slots].double(), after, rtol=2e-6, atol=2e-6)
    assert torch.equal(states[[1, 2, 5]], untouched)


def test_only_what_it_names() -> None:
    with FakeTensorMode():
        states, x = torch.empty(2, 3, 16, 16, device="cuda"), torch.empty(2, 3, 16, device="cuda")
        assert not step_kernel_allowed(states, (x,)), "gradients"
        with torch.no_grad():
            assert step_kernel_allowed(states, (x, x))
            assert not step_kernel_allowed(states.double(), (x, x))
            assert not step_kernel_allowed(states, (x, x.bfloat16()))
            assert not step_kernel_allowed(states.transpose(2, 3), (x, x))
            assert not step_kernel_allowed(states.new_empty(2, 3, WIDEST + 16, 16), (x, x))
            assert not step_kernel_allowed(states.new_empty(2, 3, 16, 16, device="cpu"), (x, x))
