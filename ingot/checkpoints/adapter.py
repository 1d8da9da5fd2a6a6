"""A trained adapter apart from its base: what is added to, and replaced in, the weights of a stored model.

    rows start … end of W   ←   W + s·B A                    in float32, a chunk at a time
    single rows             ←   those of new tokens
    heads                   ←   those that were trained; the base need not have them

The base may be of any format and any size: `adapted` is a stored model like others, whose weights are merged while they are read,
so that a merged checkpoint is written with the memory of a chunk (checkpoint.py, convert.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ingot.checkpoints.heads import OneMore
from ingot.checkpoints.stored_model import StoredModel
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.model.lora import is_head
from ingot.workspace.errors import ArtifactError


@dataclass(frozen=True)
class Update:
    """s·B A [end − start, inputs] on these rows of a weight."""

    start: int
    end: int
    lora_A: Tensor
    lora_B: Tensor
    scale: float


@dataclass(frozen=True)
class Adapter:
    """The updates of weights by name; `rows` are new rows of a weight by their numbers, `replaced` buffers and heads."""

    updates: Mapping[str, tuple[Update, ...]]
    rows: Mapping[str, tuple[tuple[int, ...], Tensor]] = field(default_factory=dict)
    replaced: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        """How many numbers were trained."""
        pairs = [each for updates in self.updates.values() for each in updates]
        return sum(each.lora_A.numel() + each.lora_B.numel() for each in pairs) + sum(
            values.numel() for _, values in self.rows.values()
        )


def joined(parts: Iterable[Adapter]) -> Adapter:
    """One adapter of those of several processes, each of some layers."""
    updates: dict[str, tuple[Update, ...]] = {}
    rows: dict[str, tuple[tuple[int, ...], Tensor]] = {}
    replaced: dict[str, Tensor] = {}
    for part in parts:
        updates |= part.updates
        rows |= part.rows
        replaced |= part.replaced
    return Adapter(updates, rows, replaced)


def adapted(base: StoredModel, adapter: Adapter) -> StoredModel:
    """The base with the adapter merged into its weights, in float32."""
    base = base.cast(torch.float32)
    for name, value in adapter.replaced.items():
        if is_head(name) and name not in base.parameters.entries:
            heads = dict.fromkeys((*base.config.heads, name.split(".")[1]))
            config = base.config.model_copy(update={"heads": tuple(heads)})
            base = dataclasses.replace(base, config=config, parameters=OneMore(base.parameters, name, value))
    for name in (*adapter.updates, *adapter.rows, *adapter.replaced):
        if name not in base.parameters.entries:
            raise ArtifactError(
                f"the adapter changes {name}, which the base does not have",
                place=base.place,
                fix="give the model that the adapter was trained on",
            )
    for name, updates in adapter.updates.items():
        shape = base.parameters.entries[name].shape
        for each in updates:
            if each.end > shape[0] or each.lora_A.shape[1] != shape[1]:
                raise ArtifactError(
                    f"the adapter's update of {name} is {each.end} × {each.lora_A.shape[1]}, the weight "
                    f"{shape[0]} × {shape[1]}",
                    place=base.place,
                    fix="give the model that the adapter was trained on",
                )
    return dataclasses.replace(base, parameters=AdaptedTensors(base.parameters, adapter))


class AdaptedTensors(Tensors):
    """Tensors that are merged with an adapter as they are read."""

    def __init__(self, source: Tensors, adapter: Adapter) -> None:
        self.source, self.adapter = source, adapter
        self.entries: dict[str, Entry] = dict(source.entries)

    def ranges(self, name: str) -> Iterator[tuple[int, int]]:
        return self.source.ranges(name)

    @torch.no_grad()
    def rows(self, name: str, start: int, end: int) -> Tensor:
        if name in self.adapter.replaced:
            value = self.adapter.replaced[name]
            return (value[start:end] if value.dim() else value).to(self.entries[name].dtype)
        values = self.source.rows(name, start, end)
        if name in self.adapter.updates or name in self.adapter.rows:
            values = values.clone()  # it may be the memory of a live model
        for update in self.adapter.updates.get(name, ()):
            first, last = max(start, update.start), min(end, update.end)
            if first < last:
                part = update.lora_B[first - update.start : last - update.start]
                values[first - start : last - start] += part.float() @ update.lora_A.float() * update.scale
        numbers, new = self.adapter.rows.get(name, ((), values))
        for number, row in zip(numbers, new, strict=False):
            if start <= number < end:
                values[number - start] = row
        return values
