"""The causal convolution: torch's own, document by document, and piece by piece."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, silu

from ingot.model.context import Context
from ingot.model.mixers.cache import StateCache
from ingot.model.mixers.convolution import Convolution
from tests.model.mixers.recurrent_cases import (
    LENGTH,
    ROWS,
    WIDTH,
    assert_near,
    cached_context,
    packed_rows,
    plain_context,
    random_input,
    random_values,
)


def made(taps: int, bias: bool) -> Convolution:
    convolution = Convolution(WIDTH, taps, bias=bias).double()
    random_values(convolution)
    return convolution


def reference(convolution: Convolution, x_BTC: Tensor) -> Tensor:
    past = convolution.taps - 1
    out = conv1d(x_BTC.mT, convolution.weight[:, None], convolution.bias, padding=past, groups=x_BTC.shape[2])
    return silu(out[..., : x_BTC.shape[1]].mT)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 3, 11])
def test_equals_torch(taps: int, bias: bool, length: int) -> None:
    convolution = made(taps, bias)
    x = random_input(2, length, WIDTH).requires_grad_()
    weight = random_input(2, length, WIDTH, seed=4)
    outputs = convolution(x, plain_context(2, length)), reference(convolution, x)
    assert_near(*outputs, 1e-13)
    found, expected = (torch.autograd.grad((y * weight).sum(), [x, *convolution.parameters()]) for y in outputs)
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-11)


def test_documents_do_not_see_each_other() -> None:
    convolution = made(4, True)
    positions, documents, places = packed_rows()
    x = random_input(len(ROWS), LENGTH, WIDTH)
    packed = convolution(x, Context(positions, documents))
    for row, place in places:
        assert_near(packed[row, place], reference(convolution, x[row : row + 1, place])[0], 1e-13)


def test_goes_on_from_its_last_inputs() -> None:
    """Rows of different lengths, also shorter than the filter, in shuffled slots that held something before."""
    convolution = made(4, True)
    x, slots = random_input(3, 12, WIDTH), torch.tensor([2, 0, 3])
    expected = reference(convolution, x)
    cache = StateCache({"convolution": (3, WIDTH)}, 4, {"convolution": torch.float64}, torch.device("cpu"))
    cache.states["convolution"].fill_(7.0)
    done = [0, 0, 0]
    for pieces in ((5, 1, 2), (1, 2, 5), (1, 1, 1), (2, 0, 1), (1, 1, 1)):
        piece = random_input(3, max(pieces), WIDTH, seed=6)
        for row, count in enumerate(pieces):
            piece[row, :count] = x[row, done[row] : done[row] + count]
        with torch.no_grad():
            found = convolution(piece, cached_context(slots, done, max(pieces), pieces), cache)
        for row, count in enumerate(pieces):
            torch.testing.assert_close(found[row, :count], expected[row, done[row] : done[row] + count])
            done[row] += count
    assert (cache.states["convolution"][1] == 7.0).all()  # a slot that takes no part


def test_low_precision_is_rounded_once() -> None:
    convolution = made(4, True).to(torch.bfloat16)
    x = random_input(2, 9, WIDTH).to(torch.bfloat16)
    exact = reference(convolution.double(), x.double())
    found = convolution.to(torch.bfloat16)(x, plain_context(2, 9))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, exact.to(torch.bfloat16), rtol=2**-7, atol=1e-6)
