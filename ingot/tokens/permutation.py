"""A shuffle that is computed, not stored: a keyed permutation of 0..n-1 in constant memory.

A Feistel network is a permutation of [0, 4^h) whatever its round function is (Luby and Rackoff 1988). Values from n on
are fed back in until one falls below n ("cycle walking", Black and Rogaway 2002), which makes it a permutation of
[0, n); for n > 2 the domain is less than 4n, so fewer than four tries are expected.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = TypeVar("Value", int, NDArray[Any])  # one number, or many as uint64: the arithmetic is the same
ROUNDS = 6
_WORD = (1 << 64) - 1


class Permutation:
    """The permutation of 0..size-1 that belongs to `key`; `permutation(i)` is where i goes."""

    def __init__(self, size: int, key: str) -> None:
        if size < 1:
            raise ValueError(f"a permutation of {size} things")
        self.size = size
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        digest = hashlib.blake2b(key.encode("utf-8"), digest_size=8 * ROUNDS).digest()
        self._keys = [int.from_bytes(digest[8 * number : 8 * number + 8], "little") for number in range(ROUNDS)]

    def __call__(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"{index} is not in 0..{self.size - 1}")
        value = self._feistel(index)
        while value >= self.size:
            value = self._feistel(value)
        return value

    def many(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each of the indices goes."""
        if indices.size and not (indices.min() >= 0 and indices.max() < self.size):
            raise IndexError(f"{indices.min()}..{indices.max()} is not in 0..{self.size - 1}")
        values = self._feistel(indices.astype(np.uint64))
        outside = np.flatnonzero(values >= self.size)
        while outside.size:
            values[outside] = self._feistel(values[outside])
            outside = outside[values[outside] >= self.size]
        return values.astype(np.int64)

    def _feistel(self, value: Value) -> Value:
        left, right = value >> self._half, value & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return left << self._half | right


def _mix(value: Value) -> Value:
    """The finaliser of splitmix64: every input bit changes every output bit with probability close to a half."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _WORD
    return value ^ (value >> 31)
