"""numba: what compiled loops over float32 tensors on the CPU share (files named …_loops.py, imported at the first call).

Tensors are handed over as addresses: a number costs a tenth of what numba needs to look at an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])
Array = np.ndarray

LOG2_E = np.float32(math.log2(math.e))
ZERO = np.float32(0)
ROUNDER = np.float32(1.5 * 2**23)  # what is added to it has no digits behind the point


def fast(function: Function) -> Function:
    """Compiled with sums in any order, for finite numbers; without reference counts, as no array is made (native.loop)."""
    options = {"fastmath": {"reassoc", "contract", "nsz", "arcp", "nnan"}, "error_model": "numpy", "_nrt": False}
    return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))


def contracted(function: Function) -> Function:
    """As `fast`, with sums in the order written: a product and a sum may be one instruction."""
    options = {"fastmath": {"contract", "nsz"}, "error_model": "numpy", "_nrt": False}
    return cast(Function, numba.njit(cache=True, nogil=True, **options)(function))


def _pointer(typing: Any, address: Any, like: Any) -> Any:
    """A pointer to numbers of the type of `like` at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), generate


at = intrinsic(_pointer)


@contracted
def exponential(x: np.float32) -> np.float32:
    """e^x, of |x| > 87 that of ±87: without calls or branches, so that loops over it become vectors.

    e^x = 2^z = 2^n · 2^f with n the integer next to z; 2^f by the polynomial of Cephes' exp2f, off by 2e-7 at most. n is the
    last bits of z + 1.5·2²³, and is added to the exponent of 2^f.
    """
    z = min(max(x * LOG2_E, np.float32(-126)), np.float32(126))
    rounded = z + ROUNDER
    f = z - (rounded - ROUNDER)
    power = np.float32(1.535336188319500e-4)
    power = power * f + np.float32(1.339887440266574e-3)
    power = power * f + np.float32(9.618437357674640e-3)
    power = power * f + np.float32(5.550332471162809e-2)
    power = power * f + np.float32(2.402264791363012e-1)
    power = power * f + np.float32(6.931472028550421e-1)
    bits = np.float32(power * f + np.float32(1)).view(np.int32) + (np.float32(rounded).view(np.int32) << 23)
    return np.int32(bits).view(np.float32)
