"""Memory that is kept: never given to two living tensors, given again when the last one that sees it is gone."""

from __future__ import annotations

import torch

from ingot.model.rooms import SPARE, _kept, empty, kept_rooms, new_room, rooms_are_kept, rounded_up


def test_a_room_is_free_when_no_view_of_it_lives() -> None:
    with kept_rooms():
        first = new_room(3, 4)
        address, view = first.data_ptr(), first[1]
        assert new_room(3, 4).data_ptr() != address
        del first
        assert new_room(3, 4).data_ptr() != address  # the view lives
        del view
        again = new_room(3, 4)
        assert again.data_ptr() == address
        assert new_room(4, 3).data_ptr() != address


def test_what_autograd_keeps_is_not_given_away() -> None:
    with kept_rooms():
        x = torch.ones(5, requires_grad=True)
        factor = new_room(5).fill_(3.0)
        product = x * factor
        del factor
        new_room(5).fill_(100.0)
        product.sum().backward()
        assert x.grad is not None and x.grad.tolist() == [3.0] * 5


def test_outside_nothing_is_kept() -> None:
    with kept_rooms():
        kept = new_room(2).fill_(7.0)
        assert rooms_are_kept()
    assert not rooms_are_kept()
    assert kept.tolist() == [7.0, 7.0] and new_room(2).data_ptr() != kept.data_ptr()


def test_other_types_come_from_torch() -> None:
    like = torch.ones(2, dtype=torch.float64)
    assert empty(like, (3, 1)).dtype == torch.float64 and empty(like, (3, 1), torch.float32).dtype == torch.float32


def test_tensors_of_about_one_size_share_a_room() -> None:
    with kept_rooms():
        first = new_room(10, 100)
        address = first.data_ptr()
        del first
        other = new_room(33, 30)
        assert other.data_ptr() == address and other.shape == (33, 30) and other.is_contiguous()
        assert new_room(0, 3).shape == (0, 3)
    assert all(count <= rounded_up(count) <= max(1, count * 9 / 8) for count in range(5000))


def test_rows_of_ever_different_lengths_take_bounded_memory() -> None:
    """Steps hold four tensors at a time; what is kept is at most twice that, and a step's rooms are found again."""
    with kept_rooms():
        for length in range(1000, 60_000, 777):
            living = [new_room(length), new_room(length), new_room(2, length), new_room(length, 3)]
            for tensor, value in zip(living, range(4), strict=True):
                tensor.fill_(value)
            assert [float(tensor.sum() / tensor.numel()) for tensor in living] == [0, 1, 2, 3]
            rooms = _kept[-1]
            assert rooms.floats == sum(size * len(each) for size, each in rooms.by_size.items())
            sizes = [rounded_up(times * length) for times in (1, 1, 2, 3)]
            assert rooms.most <= sum(sizes) and rooms.floats <= SPARE * rooms.most
            del tensor, living
