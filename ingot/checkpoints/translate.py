"""Copies weights between Hugging Face tensors and our parameters, a chunk of rows at a time.

A layout (families/family.py) says which view of which tensor equals which view of which parameter. A view is three lists of
numbers: element [i, j, …] lies at `offset + i·stride₀ + j·stride₁ + …`. They are found by applying the view to a tensor
without memory; with them the values for some rows of the destination are known to lie in some rows of the sources, and only
those are read.

Invariant: every value is copied exactly once and unchanged (but for a change of dtype, if one is asked for).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ingot.checkpoints.families.family import Layout, TensorMap, View
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.workspace.errors import ArtifactError, listed


class Strided(NamedTuple):
    """A view of a tensor as numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def span(self, row: int) -> tuple[int, int]:
        """The rows it touches (first, last + 1) in a tensor whose rows have `row` values."""
        reach = sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return self.offset // row, (self.offset + reach) // row + 1

    def row_axis(self, row: int) -> int | None:
        """The axis along which it goes from row to row, if there is one and all the others stay inside a row."""
        for axis, stride in enumerate(self.strides):
            first, end = self.narrow(axis, 0, 1).span(row)
            if stride == row and end - first == 1:
                return axis
        return None

    def narrow(self, axis: int, start: int, length: int) -> Strided:
        """Its part `start` to `start + length` along an axis."""
        sizes = (*self.sizes[:axis], length, *self.sizes[axis + 1 :])
        return Strided(sizes, self.strides, self.offset + start * self.strides[axis])

    def of(self, tensor: Tensor, skipped: int = 0) -> Tensor:
        """The view of a tensor whose first `skipped` values are not there."""
        return tensor.as_strided(self.sizes, self.strides, tensor.storage_offset() + self.offset - skipped)


class Copy(NamedTuple):
    """A part of the tensor `name` and the part of the destination that gets the same numbers."""

    name: str
    source: Strided
    target: Strided

    def narrow(self, axis: int, start: int, length: int) -> Copy:
        """The same for a part along an axis."""
        return Copy(self.name, self.source.narrow(axis, start, length), self.target.narrow(axis, start, length))


class Translated(Tensors):
    """Tensors that are put together from parts of others, in the widest dtype of the parts; without parts they are zero.

    `computed` has those that follow from the configuration alone.
    """

    def __init__(
        self,
        source: Tensors,
        shapes: Mapping[str, tuple[int, ...]],
        copies: Mapping[str, Sequence[Copy]],
        computed: Mapping[str, Callable[[], Tensor]] | None = None,
    ) -> None:
        self.source, self.entries, self.computed = source, {}, computed or {}
        self._copies: dict[str, list[tuple[int, int, Copy]]] = {}  # with the first row and the end that they write
        for name, shape in shapes.items():
            dtypes = [source.entries[copy.name].dtype for copy in copies[name]] or [torch.float32]
            entry = Entry(shape, reduce(torch.promote_types, dtypes))
            self.entries[name] = entry
            self._copies[name] = [(*copy.target.span(entry.row), copy) for copy in copies[name]]

    def ranges(self, name: str) -> Iterator[tuple[int, int]]:
        entry = self.entries[name]
        for first, last, copy in self._copies[name]:
            if last - first > 1 and copy.target.row_axis(entry.row) is None:  # rows that are interleaved
                return iter([(0, entry.rows)])
        return super().ranges(name)

    def rows(self, name: str, start: int, end: int) -> Tensor:
        entry = self.entries[name]
        if name in self.computed:
            return self.computed[name]()[start:end].to(entry.dtype)
        out = torch.zeros(entry.part(start, end), dtype=entry.dtype)
        for first, last, copy in self._copies[name]:
            low, high = max(start, first), min(end, last)
            if low < high:
                part = copy
                if (low, high) != (first, last):
                    axis = copy.target.row_axis(entry.row)
                    assert axis is not None, "ranges() keeps such a tensor in one chunk"
                    part = copy.narrow(axis, low - first, high - low)
                row = self.source.entries[part.name].row
                begin, until = part.source.span(row)
                values = self.source.rows(part.name, begin, until).contiguous()
                part.target.of(out, start * entry.row).copy_(part.source.of(values, begin * row))
        return out


def tensor_shape(at: TensorMap, state: Mapping[str, Tensor]) -> tuple[int, ...]:
    """The shape of the Hugging Face tensor that `at` describes."""
    if at.shape is not None:
        return at.shape
    pair = at.pairs[0]
    return tuple(pair.ours(state[pair.parameter]).shape)


def to_parameters(theirs: Tensors, layout: Layout, state: Mapping[str, Tensor], place: str) -> Translated:
    """The parameters and buffers of a model (`state`, which may be without memory) from its Hugging Face tensors.

    A buffer that has no tensor (the momentum of a balancer) is zero, as it is in a new model. A duplicate is compared.
    """
    copies: dict[str, list[Copy]] = {name: [] for name in state}
    for name, at in layout.items():
        if at.computed is not None or (at.duplicate and name not in theirs.entries):
            continue
        shape, expected = theirs.entries[name].shape, tensor_shape(at, state)
        if shape != expected:
            raise ArtifactError(
                f"{name} is {list(shape)}, config.json asks for {list(expected)}",
                place=place,
                fix="config.json and the weights must come from the same model",
            )
        for pair in at.pairs if not at.duplicate else ():
            source, target = _numbers(pair.theirs, shape), _numbers(pair.ours, tuple(state[pair.parameter].shape))
            copies[pair.parameter].append(Copy(name, source, target))
    _check_complete(copies, state, place)
    ours = Translated(theirs, {name: tuple(tensor.shape) for name, tensor in state.items()}, copies)
    _check_duplicates(theirs, ours, layout, state, place)
    return ours


def to_tensors(ours: Tensors, layout: Layout, state: Mapping[str, Tensor], place: str) -> Translated:
    """The Hugging Face tensors of a model from its parameters and buffers."""
    shapes = {name: tensor_shape(at, state) for name, at in layout.items()}
    copies = {name: _copies(at, state, shapes[name]) for name, at in layout.items()}
    covered: dict[str, list[Copy]] = {name: [] for name in state}
    for name, at in layout.items():
        for copy in copies[name] if not at.duplicate else ():
            covered[copy.name].append(copy)
    _check_complete(covered, state, place)
    computed = {name: at.computed for name, at in layout.items() if at.computed is not None}
    return Translated(ours, shapes, copies, computed)


def _copies(at: TensorMap, state: Mapping[str, Tensor], shape: tuple[int, ...]) -> list[Copy]:
    """The copies that make up a Hugging Face tensor of this shape."""
    return [
        Copy(pair.parameter, _numbers(pair.ours, tuple(state[pair.parameter].shape)), _numbers(pair.theirs, shape))
        for pair in at.pairs
    ]


def _numbers(view: View, shape: tuple[int, ...]) -> Strided:
    base = torch.empty(shape, device="meta")
    found = view(base)
    assert found is base or found._is_view(), "a layout may only take views"
    return Strided(tuple(found.shape), found.stride(), int(found.storage_offset()))


def _check_duplicates(theirs: Tensors, ours: Tensors, layout: Layout, state: Mapping[str, Tensor], place: str) -> None:
    """Raise an error if a tensor that should be a copy of another is not."""
    shapes = {
        name: theirs.entries[name].shape for name, at in layout.items() if at.duplicate and name in theirs.entries
    }
    copies = {name: _copies(layout[name], state, shape) for name, shape in shapes.items()}
    expected = Translated(ours, shapes, copies)
    for name in shapes:
        for start, end, values in expected.chunks(name):
            if not torch.equal(values, theirs.rows(name, start, end).to(values.dtype)):
                raise ArtifactError(
                    f"{name} should be a copy of {copies[name][0].name}, but it is another matrix",
                    place=place,
                    fix='if the head is not the embedding, set "tie_word_embeddings": false in config.json',
                )


def _check_complete(copies: Mapping[str, list[Copy]], state: Mapping[str, Tensor], place: str) -> None:
    """Raise an error if a parameter is not exactly what the tensors hold: nothing may be left out silently."""
    wrong = [
        name
        for name, tensor in state.items()
        if isinstance(tensor, torch.nn.Parameter)
        and sum(math.prod(copy.source.sizes) for copy in copies[name]) != tensor.numel()
    ]
    if wrong:
        raise ArtifactError(
            f"the model type cannot store these parameters: {listed(wrong)}",
            place=place,
            fix="such a model stays in Ingot's own checkpoint format",
        )
