"""The container: all value types, both versions, and that damaged bytes end in an error that says where."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ingot.checkpoints.gguf.format import GgufFile
from ingot.workspace.errors import ArtifactError

TYPES = gguf.GGUFValueType
SCALARS = {
    TYPES.UINT8: 200, TYPES.INT8: -100, TYPES.UINT16: 60_000, TYPES.INT16: -30_000, TYPES.UINT32: 4_000_000_000,
    TYPES.INT32: -2_000_000_000, TYPES.FLOAT32: 0.5, TYPES.BOOL: True, TYPES.STRING: "é\n", TYPES.UINT64: 2**63,
    TYPES.INT64: -(2**62), TYPES.FLOAT64: 1e-300,
}  # fmt: skip


def small_file(path: Path, alignment: int | None = None) -> bytes:
    """A file with every type of value, arrays of them, and tensors of one to four sizes."""
    writer = gguf.GGUFWriter(path, "test")
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for kind, value in SCALARS.items():
        writer.add_key_value(f"one.{kind.name}", value, kind)
    for kind, value in SCALARS.items():
        writer.add_key_value(f"some.{kind.name}", [value, value], TYPES.ARRAY, sub_type=kind)
    writer.add_tensor("a", np.arange(3, dtype=np.float32))
    writer.add_tensor("b", np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))
    halves = np.arange(64, dtype=np.float16).reshape(2, 32)
    writer.add_tensor("c", halves)
    writer.add_tensor("d", gguf.quants.quantize(halves.astype(np.float32), gguf.GGMLQuantizationType.Q8_0), raw_dtype=8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return small_file(tmp_path_factory.mktemp("gguf") / "small.gguf")


@pytest.mark.parametrize("alignment", [None, 8, 256])
@pytest.mark.parametrize("version", [2, 3])
def test_everything_is_read(tmp_path: Path, alignment: int | None, version: int) -> None:
    whole = bytearray(small_file(tmp_path / "small.gguf", alignment))
    whole[4:8] = struct.pack("<I", version)
    (tmp_path / "small.gguf").write_bytes(whole)
    file = GgufFile(tmp_path / "small.gguf")
    assert file.version == version
    for kind, value in SCALARS.items():
        assert file.metadata[f"one.{kind.name}"] == value
        assert file.metadata[f"some.{kind.name}"] == [value, value]
    assert file.read("a").tolist() == [0, 1, 2]
    assert np.array_equal(file.read("b"), np.arange(24).reshape(1, 2, 3, 4))
    assert np.array_equal(file.read("c"), np.arange(64).reshape(2, 32))
    assert np.array_equal(file.read("c", slice(1, 2)), np.arange(32, 64).reshape(1, 32))
    assert np.array_equal(file.read("d", np.array([1, 0])), file.read("d")[::-1])
    assert np.abs(file.read("d") - np.arange(64).reshape(2, 32)).max() < 0.3


def test_reading_copies_nothing(tmp_path: Path) -> None:
    small_file(tmp_path / "small.gguf")
    blocks = GgufFile(tmp_path / "small.gguf").blocks("d")
    assert blocks.shape == (2, 34)
    assert not blocks.flags.owndata and not blocks.flags.writeable


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) >= 1 and len(old) == len(new)
    return data.replace(old, new, 1)


def tensor_entry(name: bytes, sizes: tuple[int, ...], kind: int, offset: int) -> bytes:
    return struct.pack(f"<Q{len(name)}sI{len(sizes)}QIQ", len(name), name, len(sizes), *sizes, kind, offset)


def header(tensors: int, entries: int, rest: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + rest


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack(f"<Q{len(key)}sI", len(key), key, kind) + value


NESTED = b"".join(struct.pack("<IQ", 9, 1) for _ in range(20_000))
DAMAGES = {
    "empty": (b"", "not readable"),
    "other file": (b"PK\3\4" + bytes(40), "does not begin with GGUF"),
    "version 1": (header(0, 0, b"", 1), "GGUF version 1"),
    "big-endian": (header(0, 0, b"", 3 << 24), "a big-endian file"),
    "cut in the header": (b"GGUF\3\0\0\0\1", "takes 8 bytes, 1 are left"),
    "tensors": (header(2**60, 0, bytes(64)), "1,152,921,504,606,846,976 tensors in 72 bytes"),
    "entries": (header(0, 2**63, bytes(64)), "metadata entries in 64 bytes"),
    "long key": (header(0, 1, struct.pack("<Q", 2**40) + bytes(64)), "goes beyond the end of the file"),
    "array": (header(0, 1, entry(b"k", 9, struct.pack("<IQ", 8, 2**50)) + bytes(64)), "values of k in 64 bytes"),
    "nesting": (header(0, 1, entry(b"k", 9, NESTED)), "an array of values of type 9, 4 arrays deep"),
    "value type": (header(0, 1, entry(b"k", 13, bytes(64))), "k has the unknown value type 13"),
    "truth": (header(0, 1, entry(b"k", 7, b"\2")), "neither 0 nor 1"),
    "text": (header(0, 1, entry(b"k", 8, struct.pack("<Q", 2) + b"\xff\xfe")), "k is not UTF-8"),
    "twice": (header(0, 2, entry(b"k", 7, b"\1") * 2), "'k' comes twice"),
    "alignment": (header(0, 1, entry(b"general.alignment", 4, struct.pack("<I", 24))), "not a power of two"),
    "tensor type": (header(1, 0, tensor_entry(b"t", (32,), 16, 0) + bytes(64)), "'t' has the type 16"),
    "dimensions": (header(1, 0, tensor_entry(b"t", (1,) * 5, 0, 0) + bytes(64)), "'t' has 5 dimensions"),
    "half a block": (header(1, 0, tensor_entry(b"t", (33,), 8, 0) + bytes(640)), "Q8_0 comes in 32s"),
    "no values": (header(1, 0, tensor_entry(b"t", (4, 0), 0, 0) + bytes(64)), "has the sizes"),
    "huge tensor": (header(1, 0, tensor_entry(b"t", (2**62, 2**62), 0, 0) + bytes(64)), "should lie at bytes"),
    "offset": (header(1, 0, tensor_entry(b"t", (4,), 0, 2**63) + bytes(64)), "should lie at bytes"),
    "unaligned": (header(1, 0, tensor_entry(b"t", (4,), 0, 8) + bytes(256)), "should lie at bytes"),
    "same tensor": (header(2, 0, tensor_entry(b"t", (4,), 0, 0) * 2 + bytes(256)), "'t' comes twice"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(tmp_path: Path, name: str) -> None:
    content, message = DAMAGES[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    began = time.monotonic()
    with pytest.raises(ArtifactError, match=message) as caught:
        GgufFile(path)
    assert time.monotonic() - began < 2
    assert str(path) in str(caught.value) and "fix:" in str(caught.value)
    with pytest.raises(ArtifactError, match="not readable"):
        GgufFile(tmp_path / "missing.gguf")


def open_and_read(path: Path) -> None:
    """Everything that a file promises must then be there."""
    try:
        file = GgufFile(path)
    except ArtifactError:
        return
    for name in file.tensors:
        with np.errstate(all="ignore"):
            assert file.read(name).shape == file.tensors[name].shape


def test_every_truncation(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cut.gguf"
    for size in range(0, len(data.rstrip(b"\0")), 3):  # behind the last tensor there is only padding
        path.write_bytes(data[:size])
        with pytest.raises(ArtifactError):
            GgufFile(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
@example(changes=[(8, b"\xff" * 8)])
def test_corrupted_bytes_never_crash(tmp_path: Path, data: bytes, changes: list[tuple[int, bytes]]) -> None:
    broken = bytearray(data)
    for place, content in changes:
        place %= len(broken)
        broken[place : place + len(content)] = content
    (tmp_path / "broken.gguf").write_bytes(broken[: len(data)])
    open_and_read(tmp_path / "broken.gguf")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_random_bytes_after_the_magic(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "random.gguf").write_bytes(b"GGUF\3\0\0\0" + content)
    open_and_read(tmp_path / "random.gguf")
