"""Values as blocks: the bits of the `gguf` package, and those of llama.cpp's own quantiser."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from ingot.checkpoints.convert import export_gguf
from ingot.checkpoints.gguf.format import GgufFile
from ingot.checkpoints.gguf.quantise import KINDS, quantise
from ingot.checkpoints.gguf.write import TYPES
from tests.checkpoints.families.harness import imported, saved
from tests.checkpoints.gguf import llama_cpp
from tests.checkpoints.gguf.making import make_reference


def hostile_values() -> torch.Tensor:
    """Ordinary weights, and rows that a quantiser may stumble over."""
    values = torch.randn(600, 256, generator=torch.Generator().manual_seed(1))
    values *= torch.logspace(-6, 3, 600)[:, None]
    values[0] = 0.0  # a block without a scale
    values[1] = -0.0
    values[2, 7], values[2, 40] = 5.0, -5.0  # two values of the largest size
    values[3] = torch.arange(256) / 2 - 63.5  # halves, where rounding has two answers
    values[4] = 1e-7 * values[4] / values[4].abs().max()  # a scale below float16's smallest
    values[5] = torch.round(values[5] * 8) / 8
    values[6] = 70_000.0  # beyond float16
    return values


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_the_bits_of_the_gguf_package(kind: str) -> None:
    values = hostile_values()
    with np.errstate(over="ignore"):
        expected = gguf.quants.quantize(values.numpy(), gguf.GGMLQuantizationType[kind]).view(np.uint8)
    assert np.array_equal(quantise(values, KINDS[kind]), expected)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_the_bits_of_llama_cpp(tmp_path: Path, kind: str) -> None:
    reference = make_reference("llama", hidden_size=256, num_hidden_layers=1, tie_word_embeddings=False)
    _, _, model = imported(*saved(reference))
    ours = GgufFile(export_gguf(model, tmp_path / "ours.gguf", type=kind.lower()))
    llama_cpp.quantise(export_gguf(model, tmp_path / "f32.gguf"), tmp_path / "theirs.gguf", TYPES[kind.lower()])
    theirs = GgufFile(tmp_path / "theirs.gguf")
    compared = [name for name, info in theirs.tensors.items() if info.block.name == ours.tensors[name].block.name]
    assert ours.tensors.keys() == theirs.tensors.keys()
    assert sum(theirs.tensors[name].block.name == kind for name in compared) == (9 if kind == "Q8_0" else 7)
    for name in compared:  # for q4_0 we store the embedding and the head in Q8_0
        assert np.array_equal(ours.blocks(name), theirs.blocks(name)), name
