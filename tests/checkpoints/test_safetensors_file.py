"""The safetensors format against the library: the same bytes written, the same values read, damage named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from ingot.checkpoints import tensors as pieces
from ingot.checkpoints.safetensors_file import DTYPES, SafetensorsFile, shard, write_safetensors
from ingot.checkpoints.tensors import Entry, MemoryTensors
from ingot.workspace.errors import ArtifactError


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    """Every dtype, in an order that is not that of the file, and odd shapes."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(3,), (2, 3, 4), (), (0, 4), (7, 5)]
    made = {
        f"{name.lower()}_{number}": (torch.rand(shapes[number % 5], generator=generator) * 2).to(dtype)
        for number, (name, dtype) in enumerate(reversed(DTYPES.items()))
    }
    return {**made, "großes ü": torch.randn(40, 3, generator=generator)}


@pytest.mark.parametrize("chunk", [40, 10**9])
def test_the_bytes_are_those_of_the_library(
    tensors: dict[str, torch.Tensor], chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "CHUNK", chunk)
    save_file(tensors, tmp_path / "theirs", metadata={"format": "pt"})
    sizes = list(write_safetensors(tmp_path / "ours", list(tensors), MemoryTensors(tensors)))
    assert sum(sizes) == sum(tensor.nbytes for tensor in tensors.values())
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_rows_are_those_of_the_tensor(tensors: dict[str, torch.Tensor], tmp_path: Path) -> None:
    save_file(tensors, tmp_path / "file")
    file = SafetensorsFile(tmp_path / "file")
    assert file.entries.keys() == tensors.keys()
    for name, tensor in tensors.items():
        entry = file.entries[name]
        assert (entry.shape, entry.dtype, entry.bytes) == (tuple(tensor.shape), tensor.dtype, tensor.nbytes)
        assert torch.equal(file.rows(name, 0, entry.rows).double(), tensor.double())
        if tensor.dim() and entry.rows > 2:
            assert torch.equal(file.rows(name, 1, 3).double(), tensor[1:3].double())


@given(data=st.data())
def test_no_damage_goes_unnoticed_or_crashes(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any change of the header gives a file whose tensors all lie inside it, or an ArtifactError."""
    folder = tmp_path_factory.mktemp("damage")
    save_file({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.int64)}, folder / "file")
    content = bytearray((folder / "file").read_bytes())
    length = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, length - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    (folder / "file").write_bytes(bytes(content[: len(content) - cut]) if data.draw(st.booleans()) else bytes(content))
    try:
        file = SafetensorsFile(folder / "file")
    except ArtifactError as error:
        assert str(folder / "file") in str(error)
        return
    for name, entry in file.entries.items():
        assert tuple(file.rows(name, 0, entry.rows).shape) == entry.shape


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]}}, "a has the dtype F4"),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 4]}}, "a should lie at bytes 0 to 4"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "a should lie at bytes 0 to 8 of 4"),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, "a has a negative size"),
        ({"a": [1]}, "a is not described as a tensor"),
        ([], "the header is not an object"),
    ],
)
def test_damage_is_named(header: object, message: str, tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "file").write_bytes(len(text).to_bytes(8, "little") + text + b"0000")
    with pytest.raises(ArtifactError) as caught:
        SafetensorsFile(tmp_path / "file")
    assert message in str(caught.value)


def test_shards_hold_at_most_what_they_may() -> None:
    entries = {name: Entry((size,), torch.uint8) for name, size in {"a": 4, "b": 6, "c": 1, "d": 30, "e": 9}.items()}
    assert shard(entries, 10) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert shard(entries, 100) == [["a", "b", "c", "d", "e"]]
