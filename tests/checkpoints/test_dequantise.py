"""Quantised weights against the functions of transformers that make plain ones of them, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import ingot
from ingot.checkpoints.convert import export_model
from ingot.checkpoints.dequantise import BlockFloat8, Mxfp4, dequantised
from ingot.checkpoints.tensors import MemoryTensors
from ingot.workspace.errors import ArtifactError
from tests.model.tiny import config, random_model, random_tokens

GENERATOR = torch.Generator().manual_seed(0)


def quantise(weight: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Float8 values and a scale per block, as DeepSeek-V3 stores them; blocks at the edge may be smaller."""
    tall, wide = (-(-size // block) for size in weight.shape)
    scales = torch.empty(tall, wide)
    values = torch.empty(weight.shape)
    for i in range(tall):
        for j in range(wide):
            rows, columns = slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block)
            scales[i, j] = weight[rows, columns].abs().max() / 448
            values[rows, columns] = weight[rows, columns] / scales[i, j]
    return values.to(torch.float8_e4m3fn), scales


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_float8_in_blocks(dtype: torch.dtype) -> None:
    values, scales = quantise(torch.randn(256, 384, generator=GENERATOR), 128)
    source = MemoryTensors({"x.weight": values, "x.weight_scale_inv": scales, "norm": torch.ones(3)})
    plain = BlockFloat8(source, (128, 128), dtype)
    assert plain.entries.keys() == {"x.weight", "norm"}
    expected = Fp8Dequantize(None)._dequantize_one(values, scales, dtype)
    for start, end in ((0, 256), (3, 130), (127, 129), (200, 201)):
        assert torch.equal(plain.rows("x.weight", start, end), expected[start:end])
    assert torch.equal(plain.rows("norm", 0, 3), torch.ones(3))


def test_float8_blocks_that_the_edge_cuts_off() -> None:
    """576 rows are four and a half blocks (the compressed keys and values of DeepSeek-V3)."""
    weight = torch.randn(18, 11, generator=GENERATOR)
    values, scales = quantise(weight, 4)
    assert scales.shape == (5, 3)
    plain = BlockFloat8(MemoryTensors({"x": values, "x_scale_inv": scales}), (4, 4), torch.float32)
    by_hand = torch.stack([values[i].float() * scales[i // 4].repeat_interleave(4)[:11] for i in range(18)])
    assert torch.equal(plain.rows("x", 0, 18), by_hand)
    assert torch.equal(plain.rows("x", 5, 17), by_hand[5:17])
    torch.testing.assert_close(by_hand, weight, rtol=0.07, atol=0.02)


def test_four_bits() -> None:
    blocks = torch.randint(0, 256, (3, 8, 2, 16), dtype=torch.uint8, generator=GENERATOR)
    scales = torch.randint(100, 150, (3, 8, 2), dtype=torch.uint8, generator=GENERATOR)
    plain = Mxfp4(MemoryTensors({"x_blocks": blocks, "x_scales": scales, "x_bias": torch.ones(2)}), torch.bfloat16)
    assert {name: entry.shape for name, entry in plain.entries.items()} == {"x": (3, 64, 8), "x_bias": (2,)}
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    for start, end in ((0, 3), (1, 2), (1, 3)):
        assert torch.equal(plain.rows("x", start, end), expected[start:end])


def test_a_scale_without_its_weight() -> None:
    with pytest.raises(ArtifactError, match=r"no weight for the scales of a\.weight"):
        BlockFloat8(MemoryTensors({"a.weight_scale_inv": torch.ones(1, 1)}), (128, 128), torch.float32)
    with pytest.raises(ArtifactError, match="no scales for the blocks of a"):
        Mxfp4(MemoryTensors({"a_blocks": torch.ones(1, 1, 1, 16)}), torch.float32)
    with pytest.raises(ArtifactError, match="quantised by the method 'eetq'"):
        dequantised(MemoryTensors({}), {"quant_method": "eetq"}, torch.float32, "config.json")


def test_a_folder_of_float8_weights_is_the_folder_of_its_plain_weights(tmp_path: Path) -> None:
    export_model(random_model(config()), tmp_path / "plain")
    tensors = load_file(tmp_path / "plain" / "model.safetensors")
    quantised, plain = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for name, tensor in tensors.items():
        quantised[name] = plain[name] = tensor
        if "proj" in name:
            quantised[name], quantised[name + "_scale_inv"] = quantise(tensor, 8)
            scales = quantised[name + "_scale_inv"].repeat_interleave(8, 0).repeat_interleave(8, 1)
            plain[name] = (quantised[name].float() * scales[: tensor.shape[0], : tensor.shape[1]]).float()
    (tmp_path / "quantised").mkdir()
    values = json.loads((tmp_path / "plain" / "config.json").read_text())
    values["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [8, 8]}
    (tmp_path / "quantised" / "config.json").write_text(json.dumps(values))
    save_file(quantised, tmp_path / "quantised" / "model.safetensors")
    save_file(plain, tmp_path / "plain" / "model.safetensors")
    tokens = random_tokens(2, 9)
    assert torch.equal(ingot.load(tmp_path / "quantised")(tokens), ingot.load(tmp_path / "plain")(tokens))
    export_model(tmp_path / "quantised", tmp_path / "again")
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == plain.keys()
    assert all(torch.equal(tensor, plain[name]) for name, tensor in again.items())
    assert "quantization_config" not in json.loads((tmp_path / "again" / "config.json").read_text())
