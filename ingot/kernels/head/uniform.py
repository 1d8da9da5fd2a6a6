"""The random number that draws one token: a pure function of the request's seed and the token's index.

A counter-based generator (SplitMix64: Steele, Lea and Flood, OOPSLA 2014), all modulo 2^64:

    s = mix(seed + G)        u = (mix(s + (index + 1) · G) >> 12) / 2^52        G = 0x9E3779B97F4A7C15

It does not depend on which other requests share the batch, on the row in it, or on how often the engine was
interrupted: a request with a seed has one text. draw_kernel.py has the same function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the multipliers of the output function


def stream(seed: int) -> int:
    """The number s of a seed, as an int64 with the same bits: torch has no unsigned arithmetic."""
    state = (seed + GOLDEN) % (1 << 64)
    state = (state ^ (state >> 30)) * FIRST % (1 << 64)
    state = (state ^ (state >> 27)) * SECOND % (1 << 64)
    return _signed(state ^ (state >> 31))


def uniform(streams_B: Tensor, steps_B: Tensor) -> Tensor:
    """The uniform number of each row in [0, 1), float64 with 52 random bits."""
    return _shift(_mix(streams_B + (steps_B + 1) * _signed(GOLDEN)), 12).double() * 2.0**-52


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: int64 shifts copy the sign, so the copies are masked off."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The output function of SplitMix64; int64 multiplication wraps modulo 2^64."""
    x = (x ^ _shift(x, 30)) * _signed(FIRST)
    x = (x ^ _shift(x, 27)) * _signed(SECOND)
    return x ^ _shift(x, 31)
