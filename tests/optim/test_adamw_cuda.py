"""The kernel against torch's AdamW, in float32 and float64.

On a CUDA device, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/optim/test_adamw_cuda.py
"""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import torch
from torch import Tensor, nn

if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.optim.adamw import AdamW
from ingot.optim.adamw_triton import BLOCK, adamw_triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SETTINGS: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.3, "betas": (0.9, 0.999)}


def assert_as_exact(found: Tensor, single: Tensor, exact: Tensor) -> None:
    """No further from float64 than torch in float32 is, but for half a unit in the last place."""
    exact = exact.detach()
    ours, theirs = (float((each.detach().cpu().double() - exact).abs().max()) for each in (found, single))
    assert ours <= theirs + torch.finfo(torch.float32).eps / 2 * float(exact.abs().max())


def somewhere(values: Tensor, offset: int) -> Tensor:
    """A copy on the device that begins `offset` numbers behind what an allocator gives."""
    place = torch.empty(offset + len(values), device=DEVICE)[offset:]
    return place.copy_(values)


@pytest.mark.parametrize(
    ("sizes", "offset"),
    [((8, BLOCK, 3 * BLOCK + 4, BLOCK - 4), 0), ((7, BLOCK, 3 * BLOCK + 5, BLOCK - 1), 0), ((8, BLOCK + 4), 1)],
    ids=["aligned", "odd", "unaligned"],
)
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.95)])
def test_steps_are_those_of_torch(betas: tuple[float, float], sizes: tuple[int, ...], offset: int) -> None:
    """Parameters of several sizes in one launch; they need not have taken the same number of steps."""
    generator = torch.Generator().manual_seed(0)
    starts = [torch.randn(size, generator=generator) for size in sizes]
    exact, single = ([nn.Parameter(each.to(dtype)) for each in starts] for dtype in (torch.float64, torch.float32))
    peers = [torch.optim.AdamW(each, **SETTINGS | {"betas": betas, "eps": 1e-6}) for each in (exact, single)]
    parameters = [somewhere(each, offset) for each in starts]
    firsts, seconds = ([torch.zeros_like(each) for each in parameters] for _ in range(2))
    steps = [torch.zeros((), device=DEVICE) for _ in sizes]
    for number in range(4):
        late = number == 0  # the first parameter comes later than the others
        gradients = [torch.randn(size, generator=generator) * 10.0 ** (-2 * number) for size in sizes]
        for theirs, peer in zip((exact, single), peers, strict=True):
            for place, (each, gradient) in enumerate(zip(theirs, gradients, strict=True)):
                each.grad = None if late and place == 0 else gradient.to(each.dtype)
            peer.step()
        scale = torch.tensor(4.0, device=DEVICE) if number % 2 else None
        given = [somewhere(each if scale is None else 4 * each, offset) for each in gradients]
        for step in steps[late:]:
            step += 1
        adamw_triton(
            *(each[late:] for each in (parameters, given, firsts, seconds, steps)),
            rate=0.01,
            decay=0.3,
            betas=betas,
            epsilon=1e-6,
            grad_scale=scale,
        )
    for place, parameter in enumerate(parameters):
        assert_as_exact(parameter, single[place], exact[place])
        for name, moment in (("exp_avg", firsts[place]), ("exp_avg_sq", seconds[place])):
            assert_as_exact(moment, peers[1].state[single[place]][name], peers[0].state[exact[place]][name])


def test_a_skipped_step_writes_nothing() -> None:
    tensors = [torch.randn(BLOCK + 1, device=DEVICE).abs() for _ in range(4)]
    before = copy.deepcopy(tensors)
    tensors[1].fill_(torch.nan)
    step, one = torch.ones((), device=DEVICE), torch.ones((), device=DEVICE)
    lists = ([each] for each in (*tensors, step))
    adamw_triton(*lists, rate=0.01, decay=0.3, betas=(0.9, 0.99), epsilon=1e-6, found_inf=one)
    assert all(torch.equal(tensors[place], before[place]) for place in (0, 2, 3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_optimizer_with_skipped_steps() -> None:
    """Against torch's on the CPU; states have torch's names."""
    generator = torch.Generator().manual_seed(1)
    exact = [nn.Parameter(torch.randn(size, generator=generator).double()) for size in (50 * BLOCK + 4, 100, 33)]
    single = [nn.Parameter(each.detach().float()) for each in exact]
    ours = [nn.Parameter(each.detach().cuda()) for each in single]
    peers = [torch.optim.AdamW(each, **SETTINGS, eps=1e-6) for each in (exact, single)]
    optimizer = AdamW([{"params": ours, "epsilon": 1e-6, **SETTINGS}])
    for number in range(4):
        skipped = number == 2
        for one, *others in zip(ours, exact, single, strict=True):
            gradient = torch.randn(one.shape, generator=generator)
            one.grad = (torch.full_like(gradient, torch.nan) if skipped else 4 * gradient).cuda()
            for other in others:
                other.grad = gradient.to(other.dtype)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0).cuda(), torch.tensor(float(skipped)).cuda()
        optimizer.step()
        for peer in () if skipped else peers:
            peer.step()
    for one, near, true in zip(ours, single, exact, strict=True):
        assert_as_exact(one, near, true)
        state = optimizer.state[one]
        assert set(state) == {"step", "exp_avg", "exp_avg_sq"} and float(state["step"]) == 3
