"""Reads a torch distributed checkpoint without trusting it.

torch keeps the table of contents of a checkpoint (`.metadata`) as a pickle and loads it with `pickle.load`, and loads values
that are not tensors with `weights_only=False`: both run whatever the file asks for. Here

    .metadata     an unpickler that knows the classes in KNOWN and nothing else; then every part is checked for its type
    file names    must lie in the checkpoint's folder
    values        `torch.load(weights_only=True)`, tensors and others

Invariant: whatever the bytes are, reading gives a checkpoint's metadata or raises ArtifactError, and no code of the file runs.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future
from torch.serialization import _get_layout

from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import inside

METADATA = ".metadata"
FIX = "use an earlier checkpoint, or one from a source that you trust"
KNOWN: dict[tuple[str, str], Any] = {
    **{
        (kind.__module__, kind.__qualname__): kind
        for kind in (
            BytesStorageMetadata,
            ChunkStorageMetadata,
            Metadata,
            MetadataIndex,
            StorageMeta,
            TensorProperties,
            TensorStorageMetadata,
            _MEM_FORMAT_ENCODING,
            _StorageInfo,
        )
    },
    **{("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _get_layout,  # looks a name up among torch's layouts
    # The folder it was written to; Python 3.13 has these classes in another module.
    **{(module, "PosixPath"): PurePosixPath for module in ("pathlib", "pathlib._local")},
    **{(module, "WindowsPath"): PureWindowsPath for module in ("pathlib", "pathlib._local")},
}
DAMAGE = (
    pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, KeyError, MemoryError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip
"""Errors of unpickling and `torch.load` for bytes that are not in their format."""


class SafeReader(FileSystemReader):
    """torch's reader with metadata that is not trusted; it is read at once, so that torch does not wrap its errors."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.metadata = _read_metadata(folder / METADATA)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self.metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        try:
            return super().read_data(plan, planner)
        except pickle.UnpicklingError as error:
            raise ArtifactError(f"a value is not a plain tensor: {error}", place=str(self.path), fix=FIX) from error


class SafeLoadPlanner(DefaultLoadPlanner):
    """torch's planner, which loads what is not a tensor (a step, a flag) as plain values only."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        try:
            loaded = torch.load(value, weights_only=True)
        except DAMAGE as error:
            raise ArtifactError(
                f"{name} is not a plain value: {error}", place="the checkpoint's state", fix=FIX
            ) from error
        set_element(self.original_state_dict, self.mappings[name], loaded)


def _read_metadata(path: Path) -> Metadata:
    try:
        with path.open("rb") as file:
            metadata = _Unpickler(file).load()
        return _checked(metadata, path)
    except FileNotFoundError as error:
        raise ArtifactError("a file of the checkpoint is missing", place=str(path), fix=FIX) from error
    except DAMAGE as error:
        raise _refused(path, str(error)) from error


class _Unpickler(pickle.Unpickler):
    """Gives the classes of KNOWN by their exact names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no checkpoint needs")
        return KNOWN[module, name]


def _checked(metadata: object, path: Path) -> Metadata:
    """The metadata if every part has the type that torch's reader expects and every file lies in the folder."""
    if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_meta, StorageMeta | None):
        raise _refused(path, "it holds something else")
    stored, locations = metadata.state_dict_metadata, metadata.storage_data
    if not isinstance(stored, dict) or not isinstance(locations, dict):
        raise _refused(path, "it has no table of tensors")
    for name, value in stored.items():
        if not isinstance(name, str) or not (isinstance(value, BytesStorageMetadata) or _is_tensor(value)):
            raise _refused(path, f"{name!r} is not described as a tensor")
    for index, location in locations.items():
        if not isinstance(index, MetadataIndex) or not isinstance(location, _StorageInfo):
            raise _refused(path, f"{index!r} is not a part of a file")
        if location.transform_descriptors:
            raise _refused(path, f"{index.fqn} is stored with {location.transform_descriptors}")
        inside(path.parent, location.relative_path, path)
    return metadata


def _is_tensor(value: object) -> bool:
    return (
        isinstance(value, TensorStorageMetadata)
        and isinstance(value.size, torch.Size)
        and isinstance(value.properties, TensorProperties)
        and isinstance(value.properties.dtype, torch.dtype)
        and isinstance(value.chunks, list)
        and all(
            isinstance(chunk, ChunkStorageMetadata)
            and isinstance(chunk.offsets, torch.Size)
            and isinstance(chunk.sizes, torch.Size)
            and len(chunk.offsets) == len(chunk.sizes) == len(value.size)
            for chunk in value.chunks
        )
    )


def _refused(path: Path, problem: str) -> ArtifactError:
    return ArtifactError(f"not the metadata of a checkpoint: {problem}", place=str(path), fix=FIX)
