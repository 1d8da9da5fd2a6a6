"""The checksum finds every single changed bit, exchanged values, and other names; and nothing else."""

from __future__ import annotations

import random
import zlib

import pytest
import torch

from ingot.inference import checksum
from ingot.inference.checksum import state_checksum, weights_checksum
from ingot.model.transformer import Transformer


def test_equal_weights_have_equal_checksums(model: Transformer) -> None:
    copy = Transformer(model.config)
    copy.load_state_dict(model.state_dict())
    assert weights_checksum(copy) == weights_checksum(model)


def test_every_single_bit_counts(model: Transformer) -> None:
    before = weights_checksum(model)
    generator = random.Random(0)
    parameters = list(model.parameters())
    for _ in range(200):
        bits = generator.choice(parameters).data.view(-1).view(torch.int32)
        place, bit = generator.randrange(len(bits)), generator.randrange(32)
        flip = -(1 << 31) if bit == 31 else 1 << bit
        bits[place] ^= flip
        assert weights_checksum(model) != before
        bits[place] ^= flip
    assert weights_checksum(model) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
@pytest.mark.parametrize("size", [1, 7, 1024, 8192, 30_001])
def test_exchanged_values_count(dtype: torch.dtype, size: int) -> None:
    values = (torch.arange(size) % 100 + 1).to(dtype)
    before = state_checksum({"a": values})
    generator = random.Random(size)
    for _ in range(50):
        first, second = generator.randrange(size), generator.randrange(size)
        if values[first] != values[second]:
            changed = values.clone()
            changed[first], changed[second] = values[second], values[first]
            assert state_checksum({"a": changed}) != before


def test_layout_in_memory_does_not_count() -> None:
    values = torch.randn(33, 65)
    before = state_checksum({"a": values})
    assert state_checksum({"a": values.t().contiguous().t()}) == before
    padded = torch.cat((torch.zeros(1), values.view(-1)))  # begins in the middle of a 64-bit word
    assert state_checksum({"a": padded[1:].view(33, 65)}) == before
    aligned = torch.randn(2 * 8192)
    shifted = torch.cat((torch.zeros(1), aligned))[1:]
    assert state_checksum({"a": shifted}) == state_checksum({"a": aligned})


def test_names_and_places_count() -> None:
    first, second = torch.randn(5), torch.randn(5)
    whole = state_checksum({"a": first, "b": second})
    assert state_checksum({"b": second, "a": first}) == whole
    assert state_checksum({"a": second, "b": first}) != whole
    assert state_checksum({"a": first, "c": second}) != whole
    assert state_checksum({"a": first}) != whole
    assert state_checksum({}) == 0


@pytest.mark.parametrize("group", [8192, 3 * 8192, 2**26])
def test_it_is_the_sum_of_its_docstring(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python's own integers; tensors of several pieces, of a part of a row, of one number and of none."""
    monkeypatch.setattr(checksum, "GROUP", group)
    torch.manual_seed(0)
    state = {"a": torch.randn(5001), "b": torch.randn(7).bfloat16(), "c": torch.randn(()), "d": torch.randn(0)}
    folded = 0
    for name, tensor in state.items():
        data = tensor.view(-1).view(torch.uint8).numpy().tobytes()
        words = [int.from_bytes(data[start : start + 8], "little") for start in range(0, len(data), 8)]
        total = 0
        for place, word in enumerate(words):
            row, column = divmod(place, 1024)
            total += (word ^ (word >> 32)) * (2 * row + 1) * ((column * 0x9E3779B97F4A7C15) % 2**64 | 1)
        folded = (folded * 6364136223846793005 + zlib.crc32(name.encode()) + total) % 2**64
    assert state_checksum(state) == folded
