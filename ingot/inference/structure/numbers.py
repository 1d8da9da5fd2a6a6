r"""Numbers between bounds as regular expressions over their decimal digits.

An integer between bounds of equal length either shares its first digit with one of them, and the rest is bounded by the
rest of that bound, or lies strictly between, and the rest is free; longer and shorter ones are free. A fraction is
compared digit by digit in the same way, where a missing digit counts as 0. For 5 ≤ x ≤ 120:

    [5-9] | [1-9][0-9] | 1([0-1][0-9]|20)

`integer` is exact: precisely the integers between the bounds, in JSON's notation. Of numbers without bounds all are
written, but exponents have at most two digits, so that none overflows a double. Numbers between bounds have no exponent,
and only so many digits after the point that numbers around the bounds have fifteen digits in all: such numbers differ as
doubles if they differ at all, so that none is rounded onto a bound that is excluded (0.30000000000000000001 is 0.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

ANY_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?"
PRECISION = 15  # decimal numbers of so many digits are all different doubles


@dataclass(frozen=True)
class Bound:
    """A limit; `strict` excludes it itself."""

    value: Decimal
    strict: bool = False

    @property
    def digits(self) -> tuple[int, int]:
        """How many there are before the point, and after it."""
        whole, fraction = _split(abs(self.value))
        return len(str(whole)), len(fraction)

    @property
    def sharp(self) -> bool:
        """Whether numbers just beside it can be told from it."""
        return not self.strict or sum(self.digits) <= PRECISION


def integer(low: int | None, high: int | None) -> str | None:
    """The integers from `low` to `high`; None if there are none."""
    options = []
    if low is None or low < 0:
        magnitude = natural(max(1, -high) if high is not None else 1, None if low is None else -low)
        options += [f"-{magnitude}"] if magnitude else []
    if high is None or high >= 0:
        magnitude = natural(max(0, low or 0), high)
        options += [magnitude] if magnitude else []
    return _either(options)


def natural(low: int, high: int | None) -> str | None:
    """The integers from `low` ≥ 0 to `high`, without a sign."""
    if high is None:
        digits = len(str(low))
        return _either([natural(low, 10**digits - 1), f"[1-9][0-9]{{{digits},}}"])
    options = []
    while low <= high:
        top = min(high, 10 ** len(str(low)) - 1)
        options.append(_equal_length(str(low), str(top)))
        low = top + 1
    return _either(options)


def number(low: Bound | None, high: Bound | None, beside: Sequence[Bound] = ()) -> str | None:
    """The numbers between the bounds, which are sharp, in decimal notation; None if there are none.

    All can be told from the values of `beside` by their digits, as from the bounds.
    """
    bounds = [bound for bound in (low, high, *beside) if bound is not None]
    if not bounds:
        return ANY_NUMBER
    before = max(bound.digits[0] for bound in bounds)
    places = max(1, PRECISION - before, *(bound.digits[1] for bound in bounds))
    options = []
    if low is None or low.value < 0:
        least = Bound(-high.value, high.strict) if high and high.value <= 0 else Bound(Decimal(0))
        magnitude = _magnitude(least, None if low is None else Bound(-low.value, low.strict), places)
        options += [f"-{magnitude}"] if magnitude else []
    if high is None or high.value >= 0:
        magnitude = _magnitude(low if low and low.value >= 0 else Bound(Decimal(0)), high, places)
        options += [magnitude] if magnitude else []
    return _either(options)


def equal_to(value: Decimal) -> str:
    """Every text of a number in decimal notation."""
    whole, digits = _split(abs(value))
    sign = "-" if value < 0 else "-?" if value == 0 else ""
    return sign + str(whole) + (rf"\.{digits}0*" if digits else r"(?:\.0+)?")


def _magnitude(low: Bound, high: Bound | None, places: int) -> str | None:
    """The numbers without a sign between bounds that are not negative, with at most so many digits after the point."""
    whole, digits = _split(low.value)
    lowest = _after_point(_fraction(digits, low.strict, None, False, places))
    free = _after_point(_fraction("", False, None, False, places))
    if high is None:
        return _either([_joined(whole, lowest), _joined(natural(whole + 1, None), free)])
    top, top_digits = _split(high.value)
    if (whole, digits) > (top, top_digits):
        return None
    if whole == top:
        return _joined(whole, _after_point(_fraction(digits, low.strict, top_digits, high.strict, places)))
    highest = _after_point(_fraction("", False, top_digits, high.strict, places))
    return _either([_joined(whole, lowest), _joined(natural(whole + 1, top - 1), free), _joined(top, highest)])


def _joined(whole: int | str | None, fraction: str | None) -> str | None:
    return None if whole is None or fraction is None else f"(?:{whole}){fraction}"


def _split(value: Decimal) -> tuple[int, str]:
    """The whole part, and the digits after the point without zeros at their end."""
    whole, _, digits = f"{value:f}".partition(".")
    return int(whole), digits.rstrip("0")


@dataclass(frozen=True)
class _Digits:
    """What may follow in a fraction: whether it may end, and the expression of at least one more digit, if any."""

    may_end: bool
    more: str | None

    def after(self, prefix: str) -> str | None:
        """The expression of `prefix` and what follows."""
        if self.more is None:
            return prefix if self.may_end else None
        return f"{prefix}(?:{self.more})?" if self.may_end else f"{prefix}(?:{self.more})"


def _after_point(digits: _Digits) -> str | None:
    if digits.more is None:
        return "" if digits.may_end else None
    return rf"(?:\.(?:{digits.more}))" + ("?" if digits.may_end else "")


def _fraction(low: str, low_strict: bool, high: str | None, high_strict: bool, places: int) -> _Digits:
    """The digits d, at most `places`, with 0.low ≤ 0.d ≤ 0.high, strict if so told; a `high` of None stands for 1."""
    may_end = low == "" and not low_strict and (high != "" or not high_strict)
    if places == 0 or high == "":  # at most zeros can follow
        return _Digits(may_end, f"0{{1,{places}}}" if may_end and places else None)
    if low == "" and high is None and not low_strict:
        return _Digits(may_end, f"[0-9]{{1,{places}}}")
    first, last = int(low[:1] or "0"), 10 if high is None else int(high[0])
    if first == last:
        same = _fraction(low[1:], low_strict, high[1:] if high else None, high_strict, places - 1)
        return _Digits(may_end, same.after(str(first)))
    at_low = _fraction(low[1:], low_strict, None, False, places - 1).after(str(first))
    between = f"[{first + 1}-{last - 1}][0-9]{{0,{places - 1}}}" if first + 1 < last else None
    at_high = None if high is None else _fraction("", False, high[1:], high_strict, places - 1).after(high[0])
    return _Digits(may_end, _either([at_low, between, at_high]))


def _equal_length(low: str, high: str) -> str:
    """The numbers from `low` to `high`, which have the same number of digits; also with zeros in front."""
    if not low:
        return ""
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        digit = low[0] if low[0] == high[0] else f"[{low[0]}-{high[0]}]"
        return digit + (f"[0-9]{{{rest}}}" if rest else "")
    if low[0] == high[0]:
        return low[0] + _equal_length(low[1:], high[1:])
    options = [low[0] + _equal_length(low[1:], "9" * rest), high[0] + _equal_length("0" * rest, high[1:])]
    first, last = int(low[0]) + 1, int(high[0]) - 1
    if first <= last:
        options.append(f"[{first}-{last}][0-9]{{{rest}}}")
    return str(_either(options))


def _either(options: list[str | None] | list[str]) -> str | None:
    known = [option for option in options if option is not None]
    return None if not known else known[0] if len(known) == 1 else "(?:" + "|".join(known) + ")"
