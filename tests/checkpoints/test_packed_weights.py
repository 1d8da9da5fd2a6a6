"""GPTQ, AWQ and bitsandbytes weights: against their definitions, integer by integer, and bitsandbytes' own functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from bitsandbytes import functional as peer
from safetensors.torch import load_file, save_file
from torch import Tensor

import ingot
from ingot.checkpoints.convert import export_model
from ingot.checkpoints.dequantise import dequantised
from ingot.checkpoints.tensors import MemoryTensors
from ingot.workspace.errors import ArtifactError
from tests.model.tiny import config, random_model, random_tokens

OUT, IN, GROUP = 16, 64, 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column that each nibble of a word holds, from the lowest bits on


def signed(word: int) -> int:
    """The int32 with the bits of an unsigned word."""
    return word - (1 << 32) if word >= 1 << 31 else word


def gptq(bits: int, less: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Random integers as GPTQ stores them, word by word in plain Python, and the weight that they mean."""
    draw = torch.Generator().manual_seed(seed)
    top, per = 2**bits, 32 // bits
    integers = torch.randint(0, top, (OUT, IN), generator=draw).tolist()
    zeros = torch.randint(0, top, (IN // GROUP, OUT), generator=draw).tolist()
    scales = torch.rand(IN // GROUP, OUT, generator=draw).half()
    groups = torch.randint(0, IN // GROUP, (IN,), generator=draw)  # as with act-order: not in sequence
    words = [
        [signed(sum(integers[o][i * per + k] << bits * k for k in range(per))) for o in range(OUT)]
        for i in range(IN // per)
    ]
    zero_words = [
        [signed(sum((row[o * per + k] - less) << bits * k for k in range(per)) % 2**32) for o in range(OUT // per)]
        for row in zeros
    ]
    plain = torch.tensor(
        [[float(scales[groups[i], o]) * (integers[o][i] - zeros[groups[i]][o]) for i in range(IN)] for o in range(OUT)],
        dtype=torch.float64,
    )
    stored = {
        "x.qweight": torch.tensor(words, dtype=torch.int32),
        "x.qzeros": torch.tensor(zero_words, dtype=torch.int32),
        "x.scales": scales,
        "x.g_idx": groups.int(),
    }
    return stored, plain.half()  # one product, rounded once


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("layout", "less"), [("gptq", 1), ("gptq_v2", 0)])
def test_gptq(bits: int, layout: str, less: int) -> None:
    stored, expected = gptq(bits, less, seed=bits)
    settings = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "checkpoint_format": layout}
    plain = dequantised(MemoryTensors({**stored, "norm": torch.ones(3)}), settings, torch.float16, "x")
    assert {name: entry.shape for name, entry in plain.entries.items()} == {"norm": (3,), "x.weight": (OUT, IN)}
    assert torch.equal(plain.rows("x.weight", 0, OUT), expected)
    assert torch.equal(plain.rows("x.weight", 3, 7), expected[3:7])
    assert torch.equal(plain.rows("norm", 0, 3), torch.ones(3))


def test_awq() -> None:
    draw = torch.Generator().manual_seed(1)
    integers = torch.randint(0, 16, (IN, OUT), generator=draw).tolist()
    zeros = torch.randint(0, 16, (IN // GROUP, OUT), generator=draw).tolist()
    scales = torch.rand(IN // GROUP, OUT, generator=draw).half()

    def words(rows: list[list[int]]) -> Tensor:
        packed = [
            [signed(sum(row[o * 8 + column] << 4 * k for k, column in enumerate(AWQ_ORDER))) for o in range(OUT // 8)]
            for row in rows
        ]
        return torch.tensor(packed, dtype=torch.int32)

    stored = {"x.qweight": words(integers), "x.qzeros": words(zeros), "x.scales": scales, "x.bias": torch.ones(OUT)}
    settings = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}
    plain = dequantised(MemoryTensors(stored), settings, torch.float16, "x")
    expected = [
        [float(scales[i // GROUP, o]) * (integers[i][o] - zeros[i // GROUP][o]) for i in range(IN)] for o in range(OUT)
    ]
    assert torch.equal(plain.rows("x.weight", 0, OUT), torch.tensor(expected, dtype=torch.float64).half())
    assert plain.entries.keys() == {"x.weight", "x.bias"}


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_four_bits_of_bitsandbytes(kind: str, nested: bool, dtype: torch.dtype) -> None:
    weight = torch.randn(96, 200, generator=torch.Generator().manual_seed(3)).to(dtype)  # 300 blocks: two outer ones
    packed, state = peer.quantize_4bit(weight, compress_statistics=nested, quant_type=kind)
    stored = {"x.weight": packed, **{f"x.weight.{name}": value for name, value in state.as_dict(packed=True).items()}}
    plain = dequantised(MemoryTensors(stored), {"quant_method": "bitsandbytes"}, dtype, "x")
    expected = peer.dequantize_4bit(packed, state)
    assert plain.entries["x.weight"].shape == (96, 200)
    assert torch.equal(plain.rows("x.weight", 0, 96), expected)
    assert torch.equal(plain.rows("x.weight", 5, 40), expected[5:40])


def test_eight_bits_of_bitsandbytes() -> None:
    weight = torch.randn(24, 40, generator=torch.Generator().manual_seed(4)).half()
    packed, scale, _ = peer.int8_vectorwise_quant(weight)
    stored = {"x.weight": packed, "x.SCB": scale, "x.weight_format": torch.tensor(0, dtype=torch.uint8)}
    plain = dequantised(MemoryTensors(stored), {"quant_method": "bitsandbytes"}, torch.float32, "x")
    assert plain.entries.keys() == {"x.weight"}
    assert torch.equal(plain.rows("x.weight", 0, 24), peer.int8_vectorwise_dequant(packed, scale))
    assert torch.equal(plain.rows("x.weight", 7, 9), peer.int8_vectorwise_dequant(packed, scale)[7:9])


def test_a_folder_with_bitsandbytes_weights(tmp_path: Path) -> None:
    """The folder as transformers saves it is the same model as one with the plain weights."""
    export_model(random_model(config(width=64, tied_embeddings=False)), tmp_path / "packed")
    export_model(random_model(config(width=64, tied_embeddings=False)), tmp_path / "plain")
    file = tmp_path / "packed" / "model.safetensors"
    tensors, plain = load_file(file), load_file(tmp_path / "plain" / "model.safetensors")
    # bitsandbytes 0.50.2 unpacks a [64, 32] matrix wrongly on a CPU (off by more than a step): rows shorter than a block
    for name in [name for name, tensor in tensors.items() if "_proj" in name and tensor.shape[1] >= 64]:
        packed, state = peer.quantize_4bit(tensors[name], compress_statistics=True, quant_type="nf4")
        plain[name] = peer.dequantize_4bit(packed, state)
        tensors[name] = packed
        tensors |= {f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()}
    save_file(tensors, file)
    save_file(plain, tmp_path / "plain" / "model.safetensors")
    values = json.loads((tmp_path / "packed" / "config.json").read_text())
    values["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (tmp_path / "packed" / "config.json").write_text(json.dumps(values))
    tokens = random_tokens(2, 9)
    found, expected = (ingot.load(tmp_path / name) for name in ("packed", "plain"))
    for (name, ours), theirs in zip(found.state_dict().items(), expected.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name
    assert torch.equal(found(tokens), expected(tokens))


def test_refusals() -> None:
    def refused(settings: dict[str, object], tensors: dict[str, Tensor], message: str) -> None:
        with pytest.raises(ArtifactError, match=message) as caught:
            dequantised(MemoryTensors(tensors), settings, torch.float16, "x")
        assert "fix:" in str(caught.value)

    refused({"quant_method": "gptq", "bits": 3}, {}, "gptq weights of 3 bits in the layout gptq")
    refused({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, {}, "in the layout marlin")
    refused({"quant_method": "awq", "bits": 4, "version": "gemv"}, {}, "in the layout gemv; read are 4 bits in gemm")
    stored, _ = gptq(4, 1, 0)
    del stored["x.scales"]
    refused({"quant_method": "gptq", "bits": 4}, stored, "x has no scales")
    refused({"quant_method": "compressed-tensors"}, {}, "by the method 'compressed-tensors'; Ingot reads fp8")
    state = {"x.weight": torch.zeros(4, 1, dtype=torch.uint8), "x.weight.quant_state.bitsandbytes__nf4": torch.zeros(3)}
    refused({"quant_method": "bitsandbytes"}, state, "bitsandbytes__nf4 is damaged")
