"""Every block format against the `gguf` package, bit for bit."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.checkpoints.gguf.format import GgufFile
from ingot.checkpoints.gguf.quants import BLOCKS, dequantise


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: BLOCKS[kind].name)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (200, 7)])
def test_random_blocks(kind: int, shape: tuple[int, int]) -> None:
    block, (rows, blocks) = BLOCKS[kind], shape
    assert block.name == gguf.GGMLQuantizationType(kind).name
    assert (block.values, block.size) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    raw = np.random.default_rng(kind).integers(0, 256, (rows, blocks * block.size), dtype=np.uint8)
    with np.errstate(all="ignore"):  # random bytes are also infinities and no numbers
        ours, theirs = dequantise(raw, block), gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(kind))
    assert ours.shape == theirs.shape == (rows, blocks * block.values)
    number = ~np.isnan(theirs)
    assert np.array_equal(np.isnan(ours), ~number)
    assert np.array_equal(ours.view(np.uint32)[number], theirs.view(np.uint32)[number])


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_values_come_back_within_the_step_of_the_format(kind: str) -> None:
    values = np.random.default_rng(1).standard_normal((8, 256), dtype=np.float32)
    number = gguf.GGMLQuantizationType[kind]
    raw = np.ascontiguousarray(gguf.quants.quantize(values, number)).view(np.uint8)
    step = {"4": 2 * 8 / 2**4, "5": 2 * 8 / 2**5, "8": 2 * 8 / 2**8}.get(kind[1], 0.02)
    assert np.abs(dequantise(raw, BLOCKS[number]) - values).max() < step


@pytest.mark.slow
def test_the_real_file(smollm2: Path, peer: gguf.GGUFReader, peer_weights: dict[str, NDArray[np.float32]]) -> None:
    file = GgufFile(smollm2)
    assert set(file.tensors) == set(peer_weights)
    for name, expected in peer_weights.items():
        ours = file.read(name)
        assert ours.shape == expected.shape
        assert np.array_equal(ours.view(np.uint32), np.ascontiguousarray(expected).view(np.uint32)), name
    metadata = {key: field.contents() for key, field in peer.fields.items() if not key.startswith("GGUF.")}
    assert file.metadata == metadata
