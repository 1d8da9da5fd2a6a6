"""The kernels of the loss against cross-entropy and z-loss in float64 autograd, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from ingot.kernels.head import cross_entropy as operation
from ingot.kernels.head import cross_entropy_kernel
from ingot.kernels.head.cross_entropy_kernel import differentiate, multiply_unless_one, spread, summarise
from ingot.train.losses import fused_head
from ingot.train.losses.fused_head import linear_cross_entropy
from tests.slow import first_fast

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = DEVICE == "cpu"
# half a step of the format, but the interpreter cuts bits off where it makes bfloat16
ROUND = {torch.float32: 1e-6, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-7 if INTERPRETED else 2.0**-8}

SIZES = cross_entropy_kernel.BLOCK, cross_entropy_kernel.WARPS


@pytest.fixture(autouse=True, scope="module")
def one_rounding() -> Iterator[None]:
    """A GPU multiplies and adds with one rounding, the interpreter with two: here it gets what the kernel relies on."""
    if not INTERPRETED:
        yield
        return
    from triton.runtime import interpreter

    def fused(self: object, x: Any, y: Any, z: Any) -> Any:
        exact = x.data.astype("float64") * y.data.astype("float64") + z.data.astype("float64")
        return interpreter.TensorHandle(exact.astype("float32"), z.dtype.scalar)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpreterBuilder, "create_fma", fused)
        yield


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several whole blocks and a part of one, with vocabularies that an interpreter can take."""
    monkeypatch.setattr(cross_entropy_kernel, "BLOCK", 1024)
    monkeypatch.setattr(cross_entropy_kernel, "WARPS", 4)


class Case:
    """Logits as they come out of a product, rounded to `dtype`, with targets at both ends and in the middle."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype, width: float = 4.0, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(rows, columns, generator=generator) * width
        logits[0] += 30.0  # rows need not lie around zero
        self.logits = logits.to(dtype)
        self.targets = torch.randint(columns, (rows,), generator=generator)
        self.targets[0], self.targets[-1] = columns - 1, 0
        self.a, self.b = torch.randn(2, rows, generator=generator)

    def exact(self, with_b: bool, scale: float, softcap: float | None) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities, log-normalisers and gradient by torch's cross-entropy and autograd in float64."""
        x = self.logits.double().requires_grad_()
        z = scale * x
        z = z if softcap is None else softcap * torch.tanh(z / softcap)
        logprobs, normalisers = -cross_entropy(z, self.targets, reduction="none"), z.logsumexp(-1)
        loss = (self.a.double() * logprobs).sum()
        if with_b:
            loss = loss + (self.b.double() * normalisers.square()).sum()
        loss.backward()
        assert x.grad is not None
        return logprobs.detach(), normalisers.detach(), x.grad


def check_gradient(found: Tensor, exact: Tensor, dtype: torch.dtype, size: Tensor | float) -> None:
    """One rounding of the exact value, and before it float32 arithmetic with numbers as large as `size`."""
    assert found.dtype == dtype
    # below the smallest normal number of float16 steps no longer shrink
    bound = ROUND[dtype] * exact.abs() + 2e-6 * size + torch.finfo(dtype).tiny * torch.finfo(dtype).eps
    wrong = (found.cpu().double() - exact).abs() - bound
    assert float(wrong.max()) <= 0, float(wrong.max())


@pytest.mark.parametrize(
    ("shape", "scale", "softcap", "with_b"),
    [
        ((1, 1), 1.0, None, False),
        ((1, 777), 1.0, None, True),
        ((3, 1024), 1.0, None, False),
        ((4, 4096 + 8), 1.0, None, True),
        ((5, 2050), -0.4, None, True),
        ((5, 2050), 1.0, 5.0, False),
        ((3, 1024), 1.7, 30.0, True),
    ],
)
@pytest.mark.parametrize("dtype", ROUND, ids=str)
def test_values_and_gradients(
    shape: tuple[int, int], dtype: torch.dtype, scale: float, softcap: float | None, with_b: bool
) -> None:
    case = Case(*shape, dtype)
    logprobs, normalisers, gradient = case.exact(with_b, scale, softcap)
    given = case.logits.to(DEVICE)
    found = differentiate(
        given, case.targets.to(DEVICE), case.a.to(DEVICE), case.b.to(DEVICE) if with_b else None, scale, softcap
    )
    assert found[2] is given
    torch.testing.assert_close(found[0].cpu().double(), logprobs, rtol=1e-6, atol=5e-6)
    torch.testing.assert_close(found[1].cpu().double(), normalisers, rtol=5e-7, atol=2e-6)
    factors = (case.a.abs() + (2 * case.b * normalisers).abs() * with_b)[:, None] * abs(scale)
    # an error in z is one of the exponent; p is at most 1, and the slope of the softcap at most 1
    check_gradient(found[2], gradient, dtype, factors)


@pytest.mark.parametrize("columns", [70_001, 65_536 + 128])
def test_blocks_as_large_as_they_are_in_use(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in zip(("BLOCK", "WARPS"), SIZES, strict=True):
        monkeypatch.setattr(cross_entropy_kernel, name, size)
    case = Case(3, columns, torch.bfloat16)
    logprobs, normalisers, gradient = case.exact(True, 1.0, None)
    found = differentiate(
        case.logits.to(DEVICE), case.targets.to(DEVICE), case.a.to(DEVICE), case.b.to(DEVICE), 1.0, None
    )
    torch.testing.assert_close(found[0].cpu().double(), logprobs, rtol=1e-6, atol=5e-6)
    torch.testing.assert_close(found[1].cpu().double(), normalisers, rtol=5e-7, atol=2e-6)
    check_gradient(found[2], gradient, torch.bfloat16, (case.a.abs() + (2 * case.b * normalisers).abs())[:, None])


@pytest.mark.parametrize("middle", [-3e4, -500.0, 0.0, 500.0, 3e4])
@pytest.mark.parametrize("width", [1e-3, 1.0, 100.0])
def test_rows_of_any_size(middle: float, width: float) -> None:
    """Nothing overflows or vanishes: float32 logits, whose distances alone matter, and a first block that is the smallest."""
    case = Case(3, 3000, torch.float32, width)
    case.logits += middle
    case.logits[:, :1024] -= 5 * width
    logprobs, normalisers, gradient = case.exact(True, 1.0, None)
    found = differentiate(
        case.logits.to(DEVICE), case.targets.to(DEVICE), case.a.to(DEVICE), case.b.to(DEVICE), 1.0, None
    )
    torch.testing.assert_close(found[0].cpu().double(), logprobs, rtol=1e-6, atol=1e-6 + 2e-7 * width)
    torch.testing.assert_close(found[1].cpu().double(), normalisers, rtol=2e-7, atol=1e-6)
    check_gradient(found[2], gradient, torch.float32, case.a.abs()[:, None] + (2 * case.b * normalisers).abs()[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.7, 3.0)])
@pytest.mark.parametrize("parts", first_fast([[1, 3000, 50], [600, 177], [1024, 1024]]))
def test_halves_with_columns_in_several_places(
    parts: list[int], dtype: torch.dtype, scale: float, softcap: float | None
) -> None:
    """A head divided by its columns: summaries are joined, and the pieces of the gradient are those of the whole."""
    case = Case(6, sum(parts), dtype, seed=3)
    logprobs, normalisers, gradient = case.exact(True, scale, softcap)
    pieces = [each.contiguous().to(DEVICE) for each in case.logits.split(parts, dim=1)]
    starts = [sum(parts[:number]) for number in range(len(parts))]
    targets, a, b = case.targets.to(DEVICE), case.a.to(DEVICE), case.b.to(DEVICE)
    summaries = torch.stack(
        [summarise(x, targets - start, scale, softcap) for x, start in zip(pieces, starts, strict=True)]
    )
    joined = summaries[:, 0].logsumexp(0)
    torch.testing.assert_close(joined.cpu().double(), normalisers, rtol=5e-7, atol=2e-6)
    torch.testing.assert_close((summaries[:, 1].sum(0) - joined).cpu().double(), logprobs, rtol=1e-6, atol=5e-6)
    done = [spread(x, targets - start, joined, a, b, scale, softcap) for x, start in zip(pieces, starts, strict=True)]
    # log Z comes in float32: its rounding is an error of the exponent
    factors = (case.a.abs() + (2 * case.b * normalisers).abs())[:, None] * (1 + normalisers.abs()[:, None] / 8)
    check_gradient(torch.cat(done, dim=1), gradient, dtype, factors)


@pytest.mark.parametrize("gap", [1, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_with_gaps_between_them(dtype: torch.dtype, gap: int) -> None:
    """As the products of a head leave them, whose rows begin at round places; what lies in the gaps stays."""
    case = Case(5, 2050, dtype)
    logprobs, normalisers, gradient = case.exact(True, 1.0, None)
    around = torch.full((5, 2050 + gap), 7.0, dtype=dtype, device=DEVICE)
    around[:, :2050] = case.logits.to(DEVICE)
    given = around[:, :2050]
    found = differentiate(given, case.targets.to(DEVICE), case.a.to(DEVICE), case.b.to(DEVICE), 1.0, None)
    torch.testing.assert_close(found[0].cpu().double(), logprobs, rtol=1e-6, atol=5e-6)
    torch.testing.assert_close(found[1].cpu().double(), normalisers, rtol=5e-7, atol=2e-6)
    check_gradient(given, gradient, dtype, (case.a.abs() + (2 * case.b * normalisers).abs())[:, None])
    assert bool((around[:, 2050:] == 7).all())


def not_a_number(x: Tensor) -> list[int]:
    return x.isnan().nonzero().flatten().tolist()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [3, 1500])
def test_what_is_no_number_stays_none(wrong: float, place: int) -> None:
    """The guards of a run look for it, in the row that has it and in no other."""
    case = Case(4, 2000, torch.bfloat16)
    case.logits[2, place] = wrong
    found = differentiate(case.logits.to(DEVICE), case.targets.to(DEVICE), case.a.to(DEVICE), None, 1.0, None)
    assert not_a_number(found[0]) == not_a_number(found[1]) == [2]
    assert found[2][2].isnan().all() and not found[2][[0, 1, 3]].isnan().any()


@pytest.mark.parametrize("wrong", [-100, -1, 2000, 2_000_000_000])
def test_a_target_that_is_no_token_shows(wrong: int) -> None:
    """And nothing next to the logits is touched."""
    case = Case(4, 2000, torch.float32)
    case.targets[1] = wrong
    around = torch.full((6, 2000), 7.0, device=DEVICE)
    around[1:5] = case.logits.to(DEVICE)
    found = differentiate(around[1:5], case.targets.to(DEVICE), case.a.to(DEVICE), None, 1.0, None)
    assert not_a_number(found[0]) == [1]
    assert bool((around[[0, 5]] == 7).all())


def test_no_rows() -> None:
    nothing = torch.zeros(0, device=DEVICE)
    found = differentiate(torch.zeros(0, 100, device=DEVICE), nothing.long(), nothing, None, 1.0, None)
    assert [each.shape for each in found] == [(0,), (0,), (0, 100)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("upstream", [1.0, -1.7])
@pytest.mark.parametrize("has_copy", [False, True], ids=["", "copy"])
def test_the_whole_loss(has_copy: bool, upstream: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """In chunks, with the products around: loss and gradients of states and of a head in float32 are those of float64.

    The vocabulary is no multiple of 8: the weight has rows of zeros, and the logits gaps.
    """
    monkeypatch.setattr(operation, "kernel_allowed", lambda x: True)  # also in the interpreter
    monkeypatch.setattr(fused_head, "_row_multiple", lambda states: 8)
    monkeypatch.setattr(fused_head, "_logits_at_once", lambda states: 3 * 1100)
    generator = torch.Generator().manual_seed(1)
    states, weight = (torch.randn(n, 16, generator=generator).to(dtype) for n in (8, 1100))
    targets, factors = torch.randint(1100, (8,), generator=generator), torch.randn(2, 8, generator=generator)
    leaves = [each.double().requires_grad_() for each in (states, weight)]
    logits = 0.5 * (leaves[0] @ leaves[1].T)
    logprobs, normalisers = -cross_entropy(logits, targets, reduction="none"), logits.logsumexp(-1)
    exact = (factors[0].double() * logprobs).sum() + (factors[1].double() * normalisers.square()).sum()
    (upstream * exact).backward()

    ours = states.clone().to(DEVICE).requires_grad_(), weight.float().to(DEVICE).requires_grad_()
    copy = weight.to(DEVICE) if has_copy else None
    a, b = factors.to(DEVICE)
    loss, _, _ = linear_cross_entropy(*ours, targets.to(DEVICE), a, b, scale=0.5, copy_VD=copy)
    (upstream * loss).backward()
    # logits and their gradients are rounded to the dtype on their way through the products
    rounding = 8 * ROUND[dtype]
    assert float(loss.detach()) == pytest.approx(float(exact.detach()), rel=rounding)
    for found, expected in zip(ours, leaves, strict=True):
        assert found.grad is not None and expected.grad is not None and found.grad.dtype == found.dtype
        error = (found.grad.cpu().double() - expected.grad).norm() / expected.grad.norm()
        assert float(error) < rounding


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("factor", [1.0, -1.7, 0.0, float("nan")])
@pytest.mark.parametrize("count", [1, 4096, 10_001])
def test_multiplying_by_a_number_on_the_device(count: int, factor: float, dtype: torch.dtype) -> None:
    x = torch.randn(count, generator=torch.Generator().manual_seed(0)).to(dtype)
    exact = x.double() * torch.tensor(factor, dtype=torch.float32).double()
    given = x.clone().to(DEVICE)
    multiply_unless_one(given, torch.tensor(factor, device=DEVICE))
    torch.testing.assert_close(given.cpu().double(), exact, rtol=ROUND[dtype], atol=0, equal_nan=True)
    if factor == 1.0:
        assert torch.equal(given.cpu(), x)
