"""Student's t distribution, and exact chances of a fair coin: what intervals and p-values are read from.

    P(|T| > t) = I_x(v/2, 1/2)      with x = v / (v + t^2) and v degrees of freedom

where I is the regularised incomplete beta function, here by its continued fraction (Abramowitz and Stegun 26.5.8, evaluated from
the front by Lentz's method), good to eight digits or more. With infinitely many degrees it is the normal distribution.
"""

from __future__ import annotations

import math
from statistics import NormalDist

NORMAL = NormalDist()
TINY = 1e-300  # instead of a zero that would be divided by
CLOSE = 1e-14
TERMS = 10_000
STEPS = 100


def two_sided(statistic: float, degrees: float) -> float:
    """The chance that |T| is at least |statistic| under Student's t with so many degrees of freedom."""
    if degrees <= 0:
        return 1.0  # nothing is known of the scatter, so nothing is unlikely
    if math.isinf(statistic):
        return 0.0
    if math.isinf(degrees):
        return math.erfc(abs(statistic) / math.sqrt(2))
    square = statistic * statistic
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + square), square / (degrees + square))


def critical(confidence: float, degrees: float) -> float:
    """The t for which P(|T| <= t) is `confidence`; infinite without any degree of freedom."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, not {confidence}")
    if degrees <= 0:
        return math.inf
    if math.isinf(degrees):
        return NORMAL.inv_cdf((1 + confidence) / 2)
    found = NORMAL.inv_cdf((1 + confidence) / 2)  # t has longer tails, so this is too small
    for _ in range(STEPS):  # Newton's, which from there never steps too far: the chance beyond t is convex in t
        step = (two_sided(found, degrees) - (1 - confidence)) / (2 * _density(found, degrees))
        found += step
        if step <= CLOSE * found:
            return found
    raise ArithmeticError(f"no t found for a confidence of {confidence} with {degrees} degrees of freedom")


def _density(t: float, degrees: float) -> float:
    logarithm = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(math.pi * degrees) / 2
    return math.exp(logarithm - (degrees + 1) / 2 * math.log1p(t * t / degrees))


def fair_coin(heads: int, tosses: int) -> float:
    """The chance that a fair coin is at least as far from even as `heads` of `tosses`, on either side."""
    fewer = min(heads, tosses - heads)
    if 2 * fewer == tosses:
        return 1.0
    return min(1.0, 2 * sum(math.comb(tosses, number) for number in range(fewer + 1)) / 2**tosses)


def incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b), the regularised incomplete beta function; `rest` is 1 - x, which the caller may know more exactly."""
    if x <= 0 or rest <= 0:
        return float(rest <= 0)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, that of the other side does not
        return 1 - incomplete_beta(b, a, rest, x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    return math.exp(logarithm) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """1 / (1 + d1 / (1 + d2 / (1 + …)))."""
    above, below = 1.0, _not_zero(1 - (a + b) * x / (a + 1))
    value = below = 1 / below
    for m in range(1, TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            below = 1 / _not_zero(1 + term * below)
            above = _not_zero(1 + term / above)
            factor = above * below
            value *= factor
        if abs(factor - 1) < CLOSE:
            return value
    raise ArithmeticError(f"the incomplete beta function does not converge at a = {a}, b = {b}, x = {x}")


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
