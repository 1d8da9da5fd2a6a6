"""Groups of tokens with equal bytes: their definition, TRL's walk over the same offsets, and conserved log-probabilities."""

from __future__ import annotations

import math
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from trl.experimental.gold.gold_trainer import ULDLoss

from ingot.tokens.alignment import TokenGroup, align

Widths = st.lists(st.integers(1, 6), min_size=1, max_size=30)


def ends_of(widths: list[int], total: int) -> list[int]:
    """Ends of tokens of about these widths that end at `total`."""
    ends = [end for end in accumulate(widths) if end < total]
    return [*ends, total]


@given(Widths, Widths, st.integers(1, 60))
def test_groups_are_the_smallest_with_equal_bytes(one: list[int], two: list[int], total: int) -> None:
    """Between two neighbouring ends that both sides have, and nowhere else: no token is lost, none is in two groups."""
    ends, others = ends_of(one, total), ends_of(two, total)
    groups = align(ends, others)
    common = [0, *sorted(set(ends) & set(others))]
    assert [(ends[each.stop - 1], others[each.other_stop - 1]) for each in groups] == [(end, end) for end in common[1:]]
    assert [place for each in groups for place in range(each.start, each.stop)] == list(range(len(ends)))
    assert [place for each in groups for place in range(each.other_start, each.other_stop)] == list(range(len(others)))
    assert [ends[each.start - 1] if each.start else 0 for each in groups] == common[:-1]


@given(Widths, Widths, st.integers(1, 60))
def test_groups_are_those_of_trl(one: list[int], two: list[int], total: int) -> None:
    ends, others = ends_of(one, total), ends_of(two, total)
    peer = ULDLoss._align_by_byte_offsets([(0, end) for end in ends], [(0, end) for end in others])
    ours = [
        (list(range(each.start, each.stop)), list(range(each.other_start, each.other_stop)))
        for each in align(ends, others)
    ]
    assert ours == list(zip(*peer, strict=True))


@given(Widths, Widths, st.randoms(use_true_random=False))
def test_log_probabilities_are_conserved(one: list[int], two: list[int], random: object) -> None:
    total = 40
    ends, others = ends_of(one, total), ends_of(two, total)
    logprobs = [-float(random.random()) for _ in others]  # type: ignore[attr-defined]  # hypothesis' own Random
    groups = align(ends, others)
    by_group = [math.fsum(logprobs[each.other_start : each.other_stop]) for each in groups]
    assert math.isclose(math.fsum(by_group), math.fsum(logprobs), abs_tol=1e-12)


@given(Widths, Widths)
def test_what_only_one_side_goes_on_with_is_in_no_group(one: list[int], two: list[int]) -> None:
    """One side stops earlier, as where the other tokenizer cannot spell what follows."""
    ends, others = list(accumulate(one)), list(accumulate(two))
    common = set(ends) & set(others)
    groups = align(ends, others)
    assert len(groups) == len(common)
    assert all(ends[each.stop - 1] == others[each.other_stop - 1] for each in groups)


def test_tokens_without_bytes_belong_to_what_they_begin() -> None:
    """A tag of three tokens is said when its last one is; an id without text cannot make a group by itself."""
    assert align([2, 9, 10], [2, 2, 2, 9, 10]) == [
        TokenGroup(0, 1, 0, 1),
        TokenGroup(1, 2, 1, 4),
        TokenGroup(2, 3, 4, 5),
    ]
    assert align([0, 2, 2, 3], [2, 3]) == [TokenGroup(0, 2, 0, 1), TokenGroup(2, 4, 1, 2)]
    assert align([2, 2, 3], [2, 2, 3]) == [TokenGroup(0, 1, 0, 1), TokenGroup(1, 3, 1, 3)]
    assert align([], [1]) == align([1], []) == []
