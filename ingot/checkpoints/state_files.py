"""Writes and reads the `state/` of a checkpoint (torch distributed checkpoint) in chunks.

Every tensor is stored in chunks of rows (`tensors.CHUNK` bytes), whether it comes from memory or from another file, so that
any reader can take a few rows without reading a stacked weight of many gigabytes. torch puts chunks together when it loads.

Invariant: writing with `write_state` holds one chunk at a time, reading with `StateFiles` two.
"""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ingot.checkpoints.full_disk import disk_errors
from ingot.checkpoints.row_ranges import RowRange, row_ranges
from ingot.checkpoints.safe_reader import SafeLoadPlanner, SafeReader
from ingot.checkpoints.tensors import Entry, MemoryTensors, Tensors
from ingot.model.order import ShardOrder, local

MODEL = "model."  # the prefix of weight names; the optimizer's state has another


def save_state(
    state: dict[str, Any],
    folder: Path,
    *,
    values: Mapping[str, Tensor] | None = None,
    orders: Mapping[str, ShardOrder] | None = None,
    group: ProcessGroup | None = None,
) -> None:
    """Write a nested state dict of tensors in memory.

    With `group` all its ranks call this together: each writes its shards of distributed tensors, and what several ranks
    hold is written by one of them. `values` are what to write instead of (this rank's part of) the tensors of those names,
    `orders` says which have their rows in the ranks' order.
    """
    planner = ChunkPlanner(None if values is None else MemoryTensors(values), orders)
    _expect_one_process()
    writer = ShardWriter(folder)
    with _unwrapped():
        save_distributed(state, storage_writer=writer, planner=planner, process_group=group, no_dist=group is None)


def load_state_files(state: dict[str, Any], folder: Path, orders: Mapping[str, ShardOrder] | None = None) -> None:
    """Fill the tensors in `state` from the folder, in place; of a distributed tensor every rank reads its own shard."""
    _expect_one_process()
    with _unwrapped():
        load_distributed(state, storage_reader=SafeReader(folder), planner=RowRangePlanner(orders or {}), no_dist=True)


def stored_shapes(folder: Path) -> dict[str, tuple[int, ...] | None]:
    """The shape of every tensor in the folder by name, None for other values."""
    stored = SafeReader(folder).read_metadata().state_dict_metadata
    return {
        name: tuple(value.size) if isinstance(value, TensorStorageMetadata) else None for name, value in stored.items()
    }


def write_state(source: Tensors, folder: Path, wrote: Callable[[int], None] = lambda size: None) -> None:
    """Write a model's weights as `save_state({"model": …})` does, reading each chunk just before it is written.

    `wrote` is called with the bytes of every chunk.
    """
    shapes = {
        name: torch.empty(entry.shape, dtype=entry.dtype, device="meta") for name, entry in source.entries.items()
    }
    _expect_one_process()
    writer = ChunkWriter(folder, wrote)
    planner = ChunkPlanner(_Prefixed(source))
    with _unwrapped():
        save_distributed({"model": shapes}, storage_writer=writer, planner=planner, no_dist=True)


@contextmanager
def _unwrapped() -> Iterator[None]:
    """A context in which errors (a full disk, a stop, a damaged source) are raised unwrapped.

    torch wraps them in something that is no `Exception`: a thread that catches those would lose it.
    """
    try:
        yield
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from None


class ChunkPlanner(DefaultSavePlanner):
    """Plans chunks of rows for a tensor that one rank holds whole, and a chunk per row range for a distributed tensor's shard.

    The values are those of the state dict, or of `source` where there is one; it holds this rank's part of each tensor.
    """

    def __init__(self, source: Tensors | None = None, orders: Mapping[str, ShardOrder] | None = None) -> None:
        super().__init__()
        self.source, self.orders = source, orders or {}
        self._own: set[MetadataIndex] = set()  # the chunks of rows that are planned here
        self._ranges: dict[MetadataIndex, RowRange] = {}  # and those of tensors in the ranks' order

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        self.plan = dataclasses.replace(plan, items=[part for item in plan.items for part in self._split(item)])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        name, data, offset = write_item.index.fqn, write_item.tensor_data, write_item.index.offset
        if data is not None and offset is not None and write_item.index in self._own:
            start = offset[0] if offset else 0
            return self._tensors(name).rows(name, start, start + (data.chunk.sizes[0] if offset else 1))
        if data is None or (self.source is None and write_item.index not in self._ranges):
            return super().resolve_data(write_item)
        shard = local(self.state_dict[name]).detach() if self.source is None else self._whole(self.source, name)
        return self._ranges[write_item.index].of(shard) if write_item.index in self._ranges else shard

    def _whole(self, source: Tensors, name: str) -> Tensor:
        return source.rows(name, 0, source.entries[name].rows)

    def _split(self, item: WriteItem) -> Iterator[WriteItem]:
        data = item.tensor_data
        if data is not None and item.index.fqn in self.orders:
            for part in row_ranges(self.state_dict[item.index.fqn], self.orders[item.index.fqn]):
                index = MetadataIndex(item.index.fqn, part.chunk.offsets)
                self._ranges[index] = part
                chunk = TensorWriteData(part.chunk, data.properties, data.size)
                yield WriteItem(index, WriteItemType.SHARD, tensor_data=chunk)
            return
        if item.type != WriteItemType.TENSOR or data is None:  # a shard of a distributed tensor, or no tensor
            yield item
            return
        for start, end in self._tensors(item.index.fqn).ranges(item.index.fqn):
            offsets = torch.Size((start, *(0 for _ in data.size[1:]))) if data.size else torch.Size()
            sizes = torch.Size((end - start, *data.size[1:])) if data.size else torch.Size()
            chunk = TensorWriteData(ChunkStorageMetadata(offsets, sizes), data.properties, data.size)
            index = MetadataIndex(item.index.fqn, offsets)
            self._own.add(index)
            yield WriteItem(index, WriteItemType.SHARD, tensor_data=chunk)

    def _tensors(self, name: str) -> Tensors:
        return MemoryTensors({name: self.state_dict[name]}) if self.source is None else self.source


class RowRangePlanner(SafeLoadPlanner):
    """Reads a shard of a tensor in the ranks' order one range of rows at a time, and all others as torch does."""

    def __init__(self, orders: Mapping[str, ShardOrder]) -> None:
        super().__init__()
        self.orders = orders
        self._ranges: dict[MetadataIndex, RowRange] = {}

    def create_local_plan(self) -> LoadPlan:
        plan = super().create_local_plan()
        items = [item for item in plan.items if item.dest_index.fqn not in self.orders]
        for name in self.orders:
            found = row_ranges(self.state_dict[name], self.orders[name])
            self._ranges |= {MetadataIndex(name, part.chunk.offsets): part for part in found}
            stored = self.metadata.state_dict_metadata[name] if self.metadata is not None else None
            assert isinstance(stored, TensorStorageMetadata)
            items += create_read_items_for_chunk_list(name, stored, [part.chunk for part in found])
        return dataclasses.replace(plan, items=items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        part = self._ranges.get(MetadataIndex(index.fqn, index.offset))
        return super().lookup_tensor(index) if part is None else part.of(local(self.state_dict[index.fqn]).detach())


class _Prefixed(Tensors):
    """Tensors under the names that they have in a checkpoint."""

    def __init__(self, source: Tensors) -> None:
        self.source = source
        self.entries = {MODEL + name: entry for name, entry in source.entries.items()}

    def ranges(self, name: str) -> Iterator[tuple[int, int]]:
        return self.source.ranges(name.removeprefix(MODEL))

    def rows(self, name: str, start: int, end: int) -> Tensor:
        return self.source.rows(name.removeprefix(MODEL), start, end)


class ShardWriter(FileSystemWriter):
    """torch's own writer: a file for each rank."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        with disk_errors(Path(self.path)):
            return super().write_data(plan, planner)


class ChunkWriter(FileSystemWriter):
    """Writes chunk after chunk. torch's own writer keeps every tensor until the file is finished."""

    def __init__(self, folder: Path, wrote: Callable[[int], None]) -> None:
        super().__init__(folder)
        self.wrote = wrote

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        file = f"{plan.storage_data.prefix}0.distcp"
        results: list[WriteResult] = []
        with disk_errors(Path(self.path)), (Path(self.path) / file).open("wb") as stream:
            for item in plan.items:
                begin = stream.tell()
                data = planner.resolve_data(item)
                assert isinstance(data, Tensor), "weights are tensors"
                torch.save(data if data.untyped_storage().nbytes() == data.nbytes else data.clone(), stream)
                length = stream.tell() - begin
                results.append(WriteResult(item.index, length, _StorageInfo(file, begin, length)))
                self.wrote(data.nbytes)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done


class StateFiles(Tensors):
    """The weights of a checkpoint. A stored chunk is read whole; the last two stay in memory."""

    def __init__(self, folder: Path) -> None:
        self.reader = SafeReader(folder)
        metadata = self.reader.read_metadata()
        self.reader.set_up_storage_reader(metadata, is_coordinator=True)
        self._stored = {
            name.removeprefix(MODEL): value
            for name, value in metadata.state_dict_metadata.items()
            if name.startswith(MODEL) and isinstance(value, TensorStorageMetadata)
        }
        self.entries = {name: Entry(tuple(value.size), value.properties.dtype) for name, value in self._stored.items()}
        self._chunk = lru_cache(maxsize=2)(self._read_chunk)

    def rows(self, name: str, start: int, end: int) -> Tensor:
        entry = self.entries[name]
        out = torch.empty(entry.part(start, end), dtype=entry.dtype)
        for number, chunk in enumerate(self._stored[name].chunks):
            if not entry.shape:
                return self._chunk(name, number)
            first, last = chunk.offsets[0], chunk.offsets[0] + chunk.sizes[0]
            low, high = max(start, first), min(end, last)
            if low < high:
                target = out[low - start : high - start]
                for axis in range(1, out.dim()):  # shards of a distributed tensor may be cut along any axis
                    target = target.narrow(axis, chunk.offsets[axis], chunk.sizes[axis])
                target.copy_(self._chunk(name, number)[low - first : high - first])
        return out

    def _read_chunk(self, name: str, number: int) -> Tensor:
        stored = self._stored[name]
        chunk = stored.chunks[number]
        out = torch.empty(chunk.sizes, dtype=stored.properties.dtype)
        alone = dataclasses.replace(stored, chunks=[chunk])
        items = create_read_items_for_chunk_list(MODEL + name, alone, [chunk])
        self.reader.read_data(LoadPlan(items), _Into(out)).wait()
        return out


class _Into(SafeLoadPlanner):
    """Reads what the plan names into one tensor."""

    def __init__(self, out: Tensor) -> None:
        super().__init__()
        self.out = out

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.out

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass


def _expect_one_process() -> None:
    """torch warns that no process group exists: one process is what is meant here.

    The filter stays: taking it away again (`warnings.catch_warnings`) is not safe with other threads, and runs are saved
    in one.
    """
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
