"""The `state/` of a checkpoint (torch distributed checkpoint), written and read in pieces.

Every tensor is stored in chunks of rows (`tensors.CHUNK` bytes), whether it comes from memory or from another file, so that
any reader can take a few rows without reading a stacked weight of many gigabytes. torch puts chunks together when it loads.

Invariant: writing with `write_state` holds one chunk at a time, reading with `StateFiles` two.
"""

from __future__ import annotations

import dataclasses
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter, _StorageInfo
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

from ingot.model.tensors import Entry, MemoryTensors, Tensors

MODEL = "model."  # what the names of weights begin with; the optimizer's state is beside it


def save_state(state: dict[str, Any], folder: Path) -> None:
    """Write a nested state dict of tensors in memory."""
    with _quietly():
        save_distributed(state, checkpoint_id=folder, planner=ChunkPlanner(), no_dist=True)


def load_state_files(state: dict[str, Any], folder: Path) -> None:
    """Fill the tensors in `state` from the folder, in place."""
    with _quietly():
        load_distributed(state, checkpoint_id=folder, no_dist=True)


def write_state(source: Tensors, folder: Path, wrote: Callable[[int], None] = lambda size: None) -> None:
    """Write a model's weights as `save_state({"model": …})` does, reading each chunk when its turn comes.

    `wrote` is told the bytes of every chunk.
    """
    shapes = {
        name: torch.empty(entry.shape, dtype=entry.dtype, device="meta") for name, entry in source.entries.items()
    }
    with _quietly():
        writer = ChunkWriter(folder, wrote)
        planner = ChunkPlanner(source)
        try:
            save_distributed({"model": shapes}, storage_writer=writer, planner=planner, no_dist=True)
        except CheckpointException as error:  # torch wraps whatever is raised inside, a stop or a damaged source too
            raise error.failures[0][0] from None


class ChunkPlanner(DefaultSavePlanner):
    """Plans a chunk per range of rows. The values are those of the state dict, or of `source` for names under `model`."""

    def __init__(self, source: Tensors | None = None) -> None:
        super().__init__()
        self.source = source
        self._own: set[MetadataIndex] = set()  # the chunks that are planned here, not those of distributed tensors

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        self.plan = dataclasses.replace(plan, items=[part for item in plan.items for part in self._split(item)])
        return self.plan

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        data, offset = write_item.tensor_data, write_item.index.offset
        if write_item.index not in self._own or data is None or offset is None:
            return super().resolve_data(write_item)
        name, start = write_item.index.fqn, offset[0] if offset else 0
        return self._tensors(name).rows(name, start, start + (data.chunk.sizes[0] if offset else 1))

    def _split(self, item: WriteItem) -> Iterator[WriteItem]:
        data = item.tensor_data
        if item.type != WriteItemType.TENSOR or data is None:  # a shard of a distributed tensor, or no tensor
            yield item
            return
        for start, end in self._tensors(item.index.fqn).cuts(item.index.fqn):
            offsets = torch.Size((start, *(0 for _ in data.size[1:]))) if data.size else torch.Size()
            sizes = torch.Size((end - start, *data.size[1:])) if data.size else torch.Size()
            chunk = TensorWriteData(ChunkStorageMetadata(offsets, sizes), data.properties, data.size)
            index = MetadataIndex(item.index.fqn, offsets)
            self._own.add(index)
            yield WriteItem(index, WriteItemType.SHARD, tensor_data=chunk)

    def _tensors(self, name: str) -> Tensors:
        return MemoryTensors({name: self.state_dict[name]}) if self.source is None else _Prefixed(self.source)


class _Prefixed(Tensors):
    """Tensors under the names that they have in a checkpoint."""

    def __init__(self, source: Tensors) -> None:
        self.source = source

    def cuts(self, name: str) -> Iterator[tuple[int, int]]:
        return self.source.cuts(name.removeprefix(MODEL))

    def rows(self, name: str, start: int, end: int) -> Tensor:
        return self.source.rows(name.removeprefix(MODEL), start, end)


class ChunkWriter(FileSystemWriter):
    """Writes chunk after chunk. torch's own writer keeps every tensor until the file is finished."""

    def __init__(self, folder: Path, wrote: Callable[[int], None]) -> None:
        super().__init__(folder)
        self.wrote = wrote

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        file = f"{plan.storage_data.prefix}0.distcp"
        results: list[WriteResult] = []
        with (Path(self.path) / file).open("wb") as stream:
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
        self.reader = FileSystemReader(folder)
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


class _Into(DefaultLoadPlanner):
    """Reads what the plan names into one tensor."""

    def __init__(self, out: Tensor) -> None:
        super().__init__()
        self.out = out

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        return self.out

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        pass


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():  # torch warns that no process group exists: one process is what is meant here
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
