"""The computed shuffle: a permutation for every size, different for every key, and close to uniform."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.tokens.permutation import Permutation, _mix


@given(size=st.integers(1, 300), key=st.text())
def test_every_value_exactly_once(size: int, key: str) -> None:
    permutation = Permutation(size, key)
    assert sorted(map(permutation, range(size))) == list(range(size))


@given(size=st.one_of(st.integers(1, 300), st.integers(1, 1 << 62)), key=st.text(), data=st.data())
def test_many_at_once_are_the_same(size: int, key: str, data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, size - 1), max_size=30))
    permutation = Permutation(size, key)
    found = permutation.many(np.asarray(indices, dtype=np.int64))
    assert found.tolist() == [permutation(index) for index in indices]


def test_keys_give_different_orders() -> None:
    orders = {tuple(map(Permutation(50, f"key {number}"), range(50))) for number in range(200)}
    assert len(orders) == 200


def test_constant_memory_for_huge_sizes() -> None:
    permutation = Permutation(10**15, "k")
    values = [permutation(index) for index in range(2000)]
    assert len(set(values)) == 2000
    assert all(0 <= value < 10**15 for value in values)
    mean = sum(values) / 2000 / 10**15
    assert abs(mean - 0.5) < 5 / (12 * 2000) ** 0.5


def test_close_to_uniform() -> None:
    """Chi-square over keys: where index 3 of 10 goes, and where the successor of 3 goes relative to it."""
    draws = 5000
    places: Counter[int] = Counter()
    steps: Counter[int] = Counter()
    for number in range(draws):
        permutation = Permutation(10, str(number))
        places[permutation(3)] += 1
        steps[(permutation(4) - permutation(3)) % 10] += 1
    square = sum((places[value] - draws / 10) ** 2 / (draws / 10) for value in range(10))
    assert square < 33.7, "chi-square with 9 degrees of freedom at p = 1e-4"
    square = sum((steps[value] - draws / 9) ** 2 / (draws / 9) for value in range(1, 10))
    assert square < 32.0, "8 degrees of freedom"


def test_bounds() -> None:
    with pytest.raises(IndexError):
        Permutation(5, "k")(5)
    for outside in ([0, 5], [-1, 0]):
        with pytest.raises(IndexError):
            Permutation(5, "k").many(np.asarray(outside))
    with pytest.raises(ValueError, match="0 things"):
        Permutation(0, "k")


def test_the_mixer_is_that_of_splitmix64() -> None:
    """Its published numbers from the seed 1234567."""
    states = [(1234567 + step * 0x9E3779B97F4A7C15) % 2**64 for step in (1, 2, 3)]
    assert [_mix(state) for state in states] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize(
    ("size", "key", "first"),
    [
        (10, "a", [3, 9, 0, 5, 4, 7]),
        (17, "b", [15, 2, 16, 10, 1, 9]),
        (5, "b", [3, 2, 0, 4, 1]),
        (10**12, "c", [475352440230, 901021093511, 762098213080, 563826309735, 27844627583, 418229166811]),
    ],
)
def test_the_order_of_a_key_is_for_ever(size: int, key: str, first: list[int]) -> None:
    """A run that is resumed by a later version has to see the data in the order in which it began."""
    assert [Permutation(size, key)(index) for index in range(len(first))] == first
