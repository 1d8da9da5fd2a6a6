"""numba: what compiled loops over float32 tensors on the CPU share (files named …_loops.py, imported at the first call).

Tensors are handed over as addresses: a number costs a tenth of what numba needs to look at an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from ingot.data.kernel_cache import kept

Function = TypeVar("Function", bound=Callable[..., Any])
Array = np.ndarray

LOG2_E = np.float32(math.log2(math.e))
ZERO = np.float32(0)
ROUNDER = np.float32(1.5 * 2**23)  # what is added to it has no digits behind the point


def reordered(function: Function) -> Function:
    """Compiled with sums in any order; without reference counts, as no array is made (native.loop)."""
    options = {"fastmath": {"reassoc", "contract", "nsz", "arcp"}, "error_model": "numpy", "_nrt": False}
    with kept(function):
        return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))


def fast(function: Function) -> Function:
    """As `reordered`, for numbers that are numbers: largest ones can be found in vectors."""
    options = {"fastmath": {"reassoc", "contract", "nsz", "arcp", "nnan"}, "error_model": "numpy", "_nrt": False}
    with kept(function):
        return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))


def contracted(function: Function) -> Function:
    """As `reordered`, with sums in the order written: a product and a sum may be one instruction."""
    options = {"fastmath": {"contract", "nsz"}, "error_model": "numpy", "_nrt": False}
    with kept(function):
        return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))


def _pointer(typing: Any, address: Any, like: Any) -> Any:
    """A pointer to numbers of the type of `like` at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), generate


pointer = intrinsic(_pointer)


def _of_two(name: str) -> Any:
    """A function of LLVM for two floats, one instruction also for vectors; not a number if one of the two is none."""

    def choose(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(ir.FloatType(), [ir.FloatType()] * 2)
            return builder.call(get_or_insert_function(builder.module, kind, name), arguments)

        return types.float32(types.float32, types.float32), generate

    return intrinsic(choose)


larger, smaller = _of_two("llvm.maximum.f32"), _of_two("llvm.minimum.f32")


@contracted
def exponential(x: np.float32) -> np.float32:
    """e^x, of |x| > 87 that of ±87, off by 1e-7 of its value at most: no calls or branches, so that loops over it become vectors.

    e^x = 2^n · e^r with n the integer next to x / ln 2, and r = x − n ln 2, in two parts, of which the product with the first is
    exact; e^r by the polynomial of Cephes' expf. n is the last bits of x / ln 2 + 1.5·2²³, and is added to the exponent of e^r.
    """
    x = smaller(larger(x, np.float32(-87)), np.float32(87))
    rounded = x * LOG2_E + ROUNDER
    n = rounded - ROUNDER
    r = (x - n * np.float32(0.693359375)) - n * np.float32(-2.12194440e-4)
    power = np.float32(1.9875691500e-4)
    power = power * r + np.float32(1.3981999507e-3)
    power = power * r + np.float32(8.3334519073e-3)
    power = power * r + np.float32(4.1665795894e-2)
    power = power * r + np.float32(1.6666665459e-1)
    power = power * r + np.float32(5.0000001201e-1)
    power = power * (r * r) + r
    bits = np.float32(power + np.float32(1)).view(np.int32) + (np.float32(rounded).view(np.int32) << 23)
    return np.int32(bits).view(np.float32)


@reordered
def largest_of(x: Array) -> np.float32:
    """The largest of some numbers; not a number if one of them is none."""
    largest = x[0]
    for i in range(x.shape[0]):
        largest = larger(largest, x[i])
    return np.float32(largest)
