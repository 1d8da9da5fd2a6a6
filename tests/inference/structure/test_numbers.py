"""Numbers between bounds: precisely those, by comparison of each number with the bounds."""

from __future__ import annotations

import re
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.inference.structure.numbers import ANY_NUMBER, Bound, integer, number

JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
bounds = st.none() | st.integers(-1200, 1200)
decimals = st.none() | st.tuples(st.decimals(-20, 20, places=2), st.booleans()).map(lambda pair: Bound(*pair))


@settings(max_examples=60, deadline=None)
@given(low=bounds, high=bounds)
def test_integers(low: int | None, high: int | None) -> None:
    pattern = integer(low, high)
    allowed = {n for n in range(-1300, 1300) if (low is None or n >= low) and (high is None or n <= high)}
    if pattern is None:
        assert not allowed
        return
    compiled = re.compile(pattern)
    assert {n for n in range(-1300, 1300) if compiled.fullmatch(str(n))} == allowed
    assert not any(compiled.fullmatch(text) for text in ("", "-", "-0", "00", "01", "1.0", "+1", "1e3"))
    for far in (10**6, 987654321):
        assert bool(compiled.fullmatch(str(far))) == (high is None)
        assert bool(compiled.fullmatch(str(-far))) == (low is None)


@settings(max_examples=100, deadline=None)
@given(low=decimals, high=decimals, samples=st.lists(st.decimals(-25, 25, places=3), max_size=30), data=st.data())
def test_numbers(low: Bound | None, high: Bound | None, samples: list[Decimal], data: st.DataObject) -> None:
    pattern = number(low, high)

    def allowed(value: Decimal) -> bool:
        above = low is None or value > low.value or (value == low.value and not low.strict)
        return above and (high is None or value < high.value or (value == high.value and not high.strict))

    step = Decimal("0.001")
    near = [b.value + k * step for b in (low, high) if b for k in (-10, -1, 0, 1, 10)]
    values = [*samples, *near, Decimal(0), Decimal(1), Decimal("0.5")]
    if pattern is None:
        assert not any(allowed(value) for value in values)
        return
    compiled = re.compile(pattern)
    for value in values:
        for text in {f"{value:f}", f"{value.normalize():f}", f"{value:f}00" if "." in f"{value:f}" else f"{value:f}.0"}:
            assert bool(compiled.fullmatch(text)) == allowed(value), (pattern, text)
    text = data.draw(st.from_regex(compiled, fullmatch=True))
    assert JSON_NUMBER.fullmatch(text) and allowed(Decimal(text)), (pattern, text)
    if low and low.strict:  # also as a double
        assert float(text) > float(low.value)
    if high and high.strict:
        assert float(text) < float(high.value)


def test_no_number_is_rounded_onto_an_excluded_bound() -> None:
    pattern = number(Bound(Decimal("0.3"), strict=True), Bound(Decimal(15)))
    assert pattern is not None
    assert re.fullmatch(pattern, "0.3000001") and re.fullmatch(pattern, "15.000")
    assert float("0.30000000000000000000060") == 0.3 and not re.fullmatch(pattern, "0.30000000000000000000060")
    assert Bound(Decimal("0.123456789012345")).sharp and Bound(Decimal("0.1234567890123456")).sharp
    assert not Bound(Decimal("0.1234567890123456"), strict=True).sharp
    assert not Bound(Decimal(10) ** 20, strict=True).sharp


def test_any_number() -> None:
    for text in ("0", "-0", "1.50", "-12e3", "1E+05", "0.1e-9"):
        assert re.fullmatch(ANY_NUMBER, text)
    for text in ("", "-", ".5", "1.", "01", "1e", "1e400", "NaN", "+1"):
        assert not re.fullmatch(ANY_NUMBER, text)
