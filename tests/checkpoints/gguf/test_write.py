"""GGUF files that Ingot writes, run by llama.cpp: the logits of transformers, in every family that is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ingot.checkpoints.convert import export_gguf
from ingot.checkpoints.gguf.architectures import ARCHITECTURES
from ingot.checkpoints.gguf.format import GgufFile
from ingot.checkpoints.gguf.read import read_gguf
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError, Interrupted
from ingot.workspace.interrupt import StopSignal
from tests.checkpoints.families.harness import LINEAR, LLAMA3, imported, saved
from tests.checkpoints.families.harness import YARN as SHARP_YARN
from tests.checkpoints.gguf import llama_cpp
from tests.checkpoints.gguf.making import make_reference

EXACT, GELU = 1e-5, 5e-3  # ggml takes GELU from a table of float16
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
MIXTURE = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}
GEMMA = {"sliding_window": 8, "query_pre_attn_scalar": 16, "num_hidden_layers": 7}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"tie_word_embeddings": False}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, wide heads": ("llama", {"head_dim": 32}),
    "llama, linear": ("llama", {"rope_parameters": LINEAR}),
    "llama, llama3": ("llama", {"rope_parameters": LLAMA3}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mixtral": ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 3}),
    "smollm3": ("smollm3", {"tie_word_embeddings": True}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen2_moe": ("qwen2_moe", {**MIXTURE, "shared_expert_intermediate_size": 48, "norm_topk_prob": False}),
    "qwen3_moe": ("qwen3_moe", {**MIXTURE, "norm_topk_prob": True}),
    "olmoe": ("olmoe", {"num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": False, "num_key_value_heads": 4}),
    "olmo2": ("olmo2", {}),
    "olmo2, tied": ("olmo2", {"tie_word_embeddings": True}),
    "olmo3": ("olmo3", {"sliding_window": 8}),
    "olmo3, yarn": (
        "olmo3",
        {"sliding_window": 8, "rope_parameters": {"full_attention": YARN, "sliding_attention": PLAIN}},
    ),
    "gemma2": ("gemma2", GEMMA),
    "gemma3": ("gemma3_text", GEMMA),
    "gemma3, linear": (
        "gemma3_text",
        {**GEMMA, "rope_parameters": {"full_attention": LINEAR, "sliding_attention": {**PLAIN, "rope_theta": 50.0}}},
    ),
    "phi3": ("phi3", {"sliding_window": None}),
    "phi3, partial": ("phi3", {"sliding_window": None, "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.5}}),
}


def model_of(model_type: str, **changes: Any) -> tuple[Any, Transformer]:
    """A tiny model of transformers, and ours with its weights."""
    reference = make_reference(model_type, **changes)
    return reference, imported(*saved(reference))[2]


def test_every_architecture_has_a_case() -> None:
    assert {model_type for model_type, _ in CASES.values()} == {one.model_type for one in ARCHITECTURES}


@pytest.mark.parametrize("name", CASES)
def test_llama_cpp_computes_what_transformers_computes(tmp_path: Path, name: str) -> None:
    model_type, changes = CASES[name]
    reference, model = model_of(model_type, **changes)
    path = export_gguf(model, tmp_path / "model.gguf")
    tokens = torch.randint(0, 96, (1, 40), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = reference(tokens).logits[0].numpy()
    found = llama_cpp.logits(path, tokens[0].tolist())
    assert expected.std() > 0.1
    assert np.abs(found - expected).max() < (GELU if "gemma" in name else EXACT) * np.abs(expected).max()

    back = read_gguf(path)
    for ours, theirs in zip(model.state_dict().items(), back.state_dict().items(), strict=True):
        assert ours[0] == theirs[0]
        if "gemma" in name and ours[0].endswith(".gain"):  # stored as 1 + w, which rounds w
            assert torch.equal(1 + ours[1], 1 + theirs[1])
        else:
            assert torch.equal(ours[1], theirs[1]), ours[0]


@pytest.mark.parametrize(("model_type", "head"), [("llama", 16), ("qwen2", 16), ("qwen3", 128)])
def test_transformers_reads_the_file(tmp_path: Path, model_type: str, head: int) -> None:
    reference, model = model_of(model_type, head_dim=head, tie_word_embeddings=False)
    path = export_gguf(model, tmp_path / "model.gguf")
    peer = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    tokens = torch.arange(40)[None]
    with torch.no_grad():
        assert (peer(tokens).logits - reference(tokens).logits).abs().max() < 1e-6


# By length; ggml also rounds the activations of a product: to the type of the matrix, or to 8 bits where that has blocks.
@pytest.mark.parametrize(("kind", "tolerance"), [("f16", 2e-3), ("bf16", 3e-2), ("q8_0", 8e-2), ("q4_0", 8e-2)])
def test_narrow_types(tmp_path: Path, kind: str, tolerance: float) -> None:
    _, model = model_of("llama", tie_word_embeddings=False)
    path = export_gguf(model, tmp_path / "model.gguf", type=kind)
    tokens = torch.randint(0, 96, (1, 40), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():  # our own reading of the same file: what is left is how llama.cpp computes with it
        expected = read_gguf(path)(tokens)[0].numpy()
    found = llama_cpp.logits(path, tokens[0].tolist())
    assert np.linalg.norm(found - expected) < tolerance * np.linalg.norm(expected)
    kinds = {name: info.block.name for name, info in GgufFile(path).tensors.items()}
    assert kinds["blk.0.ffn_up.weight"] == kind.upper()
    assert kinds["token_embd.weight"] == kinds["output.weight"] == ("Q8_0" if kind == "q4_0" else kind.upper())
    assert kinds["blk.0.attn_norm.weight"] == "F32"


def test_weights_keep_their_type_and_odd_rows_are_wider(tmp_path: Path) -> None:
    _, model = model_of("llama", hidden_size=48, head_dim=16, num_attention_heads=3, num_key_value_heads=1)
    path = export_gguf(model.bfloat16(), tmp_path / "model.gguf")
    assert GgufFile(path).tensors["blk.0.attn_q.weight"].block.name == "BF16"
    narrow = GgufFile(export_gguf(model, tmp_path / "narrow.gguf", type="q8_0"))
    assert {name: narrow.tensors[f"blk.0.{name}.weight"].block.name for name in ("attn_q", "ffn_down")} == {
        "attn_q": "F16",  # rows of 48 values
        "ffn_down": "Q8_0",
    }


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "windows": (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0},
        r"llama.cpp's qwen3 cannot compute this model: layers\[0\].mixer.window is 8, it would become None",
    ),
    "mistral's window": ("mistral", {"sliding_window": 8}, "llama cannot compute this model: .*window is 8"),
    "router": ("qwen3_moe", {**MIXTURE, "norm_topk_prob": False}, "renormalise is False, it would become True"),
    "dense layers": ("qwen3_moe", {**MIXTURE, "mlp_only_layers": [1]}, r"no place for .*model.layers.1.mlp.gate_proj"),
    "heads": ("qwen2", {"head_dim": 32}, "head_width is 32, it would become 16"),
    "grouped": ("olmoe", {"num_experts": 8, "num_experts_per_tok": 3}, "key_value_heads is 2, it would become 4"),
    "ramp": ("llama", {"rope_parameters": SHARP_YARN}, "beta_fast is 8.0, it would become 32.0"),
    "scale": ("gemma3_text", {**GEMMA, "query_pre_attn_scalar": 32}, "mixer.scale is"),
    "bias": ("qwen3", {"attention_bias": True}, r"no place for .*self_attn.q_proj.bias"),
    "unknown": (
        "glm4_moe",
        {"n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32},
        "no GGUF file of a glm4_moe model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_llama_cpp_does_not_compute_is_refused(tmp_path: Path, name: str) -> None:
    model_type, changes, message = REFUSED[name]
    _, model = model_of(model_type, **changes)
    with pytest.raises(ArtifactError, match=message) as caught:
        export_gguf(model, tmp_path / "model.gguf")
    assert "fix: `ingot export` a folder" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nothing_is_replaced_or_left_half_written(tmp_path: Path) -> None:
    _, model = model_of("llama")
    with pytest.raises(ArtifactError, match=re.escape("not the name of a GGUF file")):
        export_gguf(model, tmp_path / "model.bin")
    with pytest.raises(ArtifactError, match="no type 'q4_k': matrices are stored as f32, f16"):
        export_gguf(model, tmp_path / "model.gguf", type="q4_k")
    path = export_gguf(model, tmp_path / "model.gguf")
    with pytest.raises(ArtifactError, match="the file exists"):
        export_gguf(model, path)
    whole, stop = path.read_bytes(), StopSignal()
    stop.request()
    with pytest.raises(Interrupted):
        export_gguf(model, path, replace=True, type="q8_0", stop=stop)
    assert path.read_bytes() == whole and list(tmp_path.iterdir()) == [path]
