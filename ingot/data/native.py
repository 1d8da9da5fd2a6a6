"""CPU kernels over bytes: decorators that compile them, names for their arrays, and the hash that every step shares.

A kernel is a plain Python function over numpy arrays, compiled by numba when it is first called and stored in the user's
cache folder (kernel_cache.py), so that a machine pays the compilation once. Kernels never see Python strings: text comes as
UTF-8 bytes and offsets (see text/texts.py).

Invariant: `hash_span` depends only on the bytes of the span and on the seed; it is the same on every machine, so that
files of hashes from two machines can be compared. It is not cryptographic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from ingot.data.kernel_cache import cached

Bytes = NDArray[np.uint8]  # text in UTF-8, or a byte of flags for each of something
Offsets = NDArray[np.int64]  # where something is, or how much of it there is
Sizes = NDArray[np.int32]  # small numbers, one for each word or line; ids, code points
Words = NDArray[np.uint32]  # signatures, tables of characters
Hashes = NDArray[np.uint64]
Marks = NDArray[np.bool_]

Function = TypeVar("Function", bound=Callable[..., Any])

PRIME_1 = np.uint64(0x9E3779B185EBCA87)
PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = np.uint64(0x165667B19E3779F9)


def kernel(function: Function) -> Function:
    """Compile `function` with numba; the GIL is released while it runs, integer arithmetic wraps as in C."""
    with cached(function):
        return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


def loop(function: Function) -> Function:
    """As `kernel`, for kernels that call one another and allocate nothing: without reference counts.

    numba counts the references to an array around every call that it does not inline away, with an atomic operation each;
    a kernel that calls a helper for each character spends most of its time there. Such code must make no array.
    """
    with cached(function):
        return cast(Function, numba.njit(cache=True, nogil=True, error_model="numpy", _nrt=False)(function))


def inline(function: Function) -> Function:
    """A small helper of kernels, copied into each of them."""
    with cached(function):
        return cast(Function, numba.njit(cache=True, nogil=True, inline="always", error_model="numpy")(function))


@kernel
def rotate(value: np.uint64, bits: int) -> np.uint64:
    """Rotate 64 bits to the left."""
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@kernel
def finish(value: np.uint64) -> np.uint64:
    """Spread every bit over the whole word (the finaliser of XXH64)."""
    value ^= value >> np.uint64(33)
    value *= PRIME_2
    value ^= value >> np.uint64(29)
    value *= PRIME_3
    return value ^ (value >> np.uint64(32))


@kernel
def join(left: np.uint64, right: np.uint64) -> np.uint64:
    """The hash of a sequence, one element further; the order counts."""
    return rotate(left ^ (right * PRIME_2), 27) * PRIME_1 + PRIME_3


@kernel
def load_8(data: np.ndarray, at: int) -> np.uint64:
    """Eight bytes as one little-endian word: LLVM makes one load of it, as unsigned indices need no wrapping round."""
    first = np.uint64(at)
    value = np.uint64(data[first])
    for index in range(1, 8):
        value |= np.uint64(data[first + np.uint64(index)]) << np.uint64(8 * index)
    return value


@kernel
def load_last(data: np.ndarray, at: int, end: int) -> np.uint64:
    """The bytes [at, end), one to seven, as the low bytes of a word."""
    if at + 8 <= data.shape[0]:  # one load, and what is behind the span is masked away
        return load_8(data, at) & (~np.uint64(0) >> np.uint64(64 - 8 * (end - at)))
    last = np.uint64(0)
    for index in range(at, end):
        last |= np.uint64(data[index]) << np.uint64(8 * (index - at))
    return last


@kernel
def hash_span(data: np.ndarray, start: int, end: int, seed: np.uint64) -> np.uint64:
    """A 64-bit hash of the bytes [start, end)."""
    value = seed ^ (np.uint64(end - start) * PRIME_1)
    at = start
    while at + 8 <= end:
        value = join(value, load_8(data, at))
        at += 8
    if at < end:
        value = join(value, load_last(data, at, end))
    return finish(value)


@kernel
def hash_each(data: Bytes, offsets: Offsets, seed: np.uint64) -> Hashes:
    """The hash of every text; text i is data[offsets[i] : offsets[i + 1]]."""
    found = np.empty(len(offsets) - 1, np.uint64)
    for index in range(len(found)):
        found[index] = hash_span(data, offsets[index], offsets[index + 1], seed)
    return found
