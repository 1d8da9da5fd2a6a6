"""Casting rows to float8 and products with a scale a row, for sampling: the kernel against the definition, bit by bit.

On a GPU, or in Triton's interpreter on a CPU: TRITON_INTERPRET=1 python -m pytest tests/kernels/test_float8_rows.py
The products need a GPU with float8 (Ada, Hopper or newer).
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.kernels.launch import has_triton
from ingot.kernels.quantised.float8 import TINY, cast_rows, cast_rows_allowed, multiply_cast, to_float8
from tests.slow import first_fast

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.skipif(
    not (has_triton() and (INTERPRETED or torch.cuda.is_available())),
    reason="needs Triton and a CUDA device, or TRITON_INTERPRET=1",
)
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
HAS_PRODUCTS = DEVICE == "cuda" and torch.cuda.get_device_capability() >= (8, 9)
products = pytest.mark.skipif(not HAS_PRODUCTS, reason="needs a CUDA device with float8 products")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
TARGETS = {"fp8e4nv": E4M3, "fp8e5": E5M2}
ROUNDED = 2.0**-8  # half a step of bfloat16, in which results come out


@pytest.fixture(autouse=True)
def casts_as_a_gpu_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's interpreter rounds to float8 without carrying into the exponent (-127 becomes -64): torch's cast instead."""
    if not INTERPRETED:
        return
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def cast(value: Any, source: Any, target: Any, mode: Any) -> Any:
        if str(target) not in TARGETS:
            return convert(value, source, target, mode)
        return torch.from_numpy(value).to(TARGETS[str(target)]).view(torch.uint8).numpy()

    monkeypatch.setattr(interpreter, "_convert_float", cast)


def normal(*size: int, seed: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def rows(count: int, width: int, dtype: torch.dtype, size: float = 1.0) -> Tensor:
    """Rows of different sizes, one of zeros, and outliers."""
    x = normal(count, width, seed=width) * size * torch.logspace(-2, 0, count)[:, None]
    x[0, :: max(1, width // 3)] *= 300
    x[count // 2] *= 0 if count > 1 else 1
    return x.to(dtype)


def launch(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    from ingot.kernels.quantised.float8_kernel import launch_cast_rows

    values, scales = launch_cast_rows(x.to(DEVICE), dtype, TINY)
    assert values.dtype == dtype and values.is_contiguous() and scales.dtype == torch.float32
    return values.cpu(), scales.cpu()


def same_bits(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    assert torch.equal(found[1].view(torch.int32), expected[1].view(torch.int32)), "scales"
    assert torch.equal(found[0].view(torch.uint8), expected[0].view(torch.uint8)), "values"


@pytest.mark.parametrize("shape", [(1, 16), (7, 80), (3, 2048), (2, 14_336), (0, 64)])
@pytest.mark.parametrize("x_dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("size", [1e-9, 1.0, 100.0])
def test_bit_by_bit(shape: tuple[int, int], x_dtype: torch.dtype, size: float) -> None:
    """The definition runs on the CPU, also where the kernel runs on a GPU."""
    x = rows(*shape, x_dtype, size) if shape[0] else torch.empty(shape, dtype=x_dtype)
    same_bits(launch(x, E4M3), to_float8(x, E4M3, "row"))


@pytest.mark.parametrize("dtype", first_fast([E5M2, E4M3]), ids=str)
def test_other_format_and_layout(dtype: torch.dtype) -> None:
    """Gradients' format, and rows with gaps between them."""
    x = rows(6, 160, torch.bfloat16)[:, 32:96]
    assert not x.is_contiguous()
    same_bits(launch(x, dtype), to_float8(x, dtype, "row"))


def test_every_value_of_bfloat16() -> None:
    """In rows whose largest value is the format's: every way to round, ties and subnormal float8 among them."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    every = every[every.isfinite() & (every.abs() < 448)]
    x = torch.nn.functional.pad(every, (0, -len(every) % 2048)).view(-1, 2048)
    x = torch.cat((torch.full_like(x[:, :1], 448), x), dim=1)
    same_bits(launch(x, E4M3), to_float8(x, E4M3, "row"))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("nan")])
def test_what_is_not_finite_is_not_hidden(wrong: float) -> None:
    """Its own row becomes NaN in the product; the other rows do not change."""
    x = rows(3, 64, torch.bfloat16)
    expected = launch(x, E4M3)
    x[2, 5] = wrong
    values, scales = launch(x, E4M3)
    same_bits((values[:2], scales[:2]), (expected[0][:2], expected[1][:2]))
    assert not bool(scales[2].isfinite())
    product = multiply_cast(values, scales, expected[0], expected[1], torch.float32, fast=True)
    assert bool(product[:2].isfinite().all()) and bool(product[2, [0, 2]].isnan().all())


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("width", [64, 4096, 14_336, 28_672])
def test_the_dispatcher_takes_the_kernel(width: int) -> None:
    """And the definition on the device has the same bits, which is what a compiler fuses."""
    x = rows(33, width, torch.bfloat16).cuda()
    with torch.no_grad():
        assert cast_rows_allowed(x, E4M3)
        found = cast_rows(x, E4M3)
    assert not cast_rows_allowed(x, E4M3), "gradients are kept"
    for other in (cast_rows(x, E4M3), to_float8(x, E4M3, "row"), to_float8(x.cpu(), E4M3, "row")):
        same_bits((found.values.cpu(), found.scales.cpu()), (other[0].cpu(), other[1].cpu()))


@products
@pytest.mark.parametrize("count", [1, 3, 16, 100, 257, 1000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_products_of_any_number_of_rows(count: int, dtype: torch.dtype) -> None:
    """Sampling has as many rows as there are requests, no multiple of anything."""
    x, weight = normal(count, 512, seed=1).to(dtype), normal(1024, 512, seed=2).to(dtype)
    expected = multiply_cast(*to_float8(x, E4M3, "row"), *to_float8(weight, E4M3, "row"), dtype, fast=True).double()
    with torch.no_grad():
        found = multiply_cast(*cast_rows(x.cuda(), E4M3), *cast_rows(weight.cuda(), E4M3), dtype, fast=True)
    assert found.dtype == dtype and found.shape == (count, 1024)
    # `fast` sums keep about 14 bits: a few roundings of bfloat16
    assert float((found.cpu().double() - expected).norm() / expected.norm()) < 4 * ROUNDED


@products
def test_in_a_cuda_graph() -> None:
    """Cast and product are captured, and replayed for other values."""
    weight = cast_rows(normal(1024, 512, seed=2).cuda(), E4M3)
    one, two = (normal(24, 512, seed=seed).to("cuda", torch.bfloat16) for seed in (3, 4))
    static = one.clone()

    def run() -> Tensor:
        return multiply_cast(*cast_rows(static, E4M3), *weight, torch.bfloat16, fast=True)

    with torch.no_grad():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            first = run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run()
        for x in (two, one):
            static.copy_(x)
            graph.replay()
            assert torch.equal(out, first) == (x is one)
            assert torch.equal(out, run())
