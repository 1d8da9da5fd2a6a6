"""Models from GGUF files against transformers: the model that was written, and transformers' own reading of the file."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from ingot.checkpoints.gguf.read import open_gguf, read_gguf
from ingot.model.transformer import Transformer
from ingot.workspace.errors import ArtifactError
from tests.checkpoints.gguf.making import make_gguf, make_reference

YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 4.0}
CASES: dict[str, tuple[str, bool, dict[str, Any], dict[str, Any]]] = {
    "llama": ("llama", True, {"tie_word_embeddings": False}, {}),
    "tied": ("llama", True, {"tie_word_embeddings": True, "rope_parameters": {"rope_theta": 500.0}}, {}),
    "wide heads": ("llama", True, {"head_dim": 32, "num_key_value_heads": 4}, {}),
    "biases": ("llama", True, {"attention_bias": True}, {}),
    "linear": (
        "llama",
        True,
        {"rope_parameters": LINEAR},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    ),
    "yarn": (
        "llama",
        True,
        {"rope_parameters": YARN},
        {
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 16,
        },
    ),
    "smollm3": ("smollm3", True, {"tie_word_embeddings": True}, {}),
    "qwen2": ("qwen2", False, {"tie_word_embeddings": True}, {}),
    "qwen3": ("qwen3", False, {"tie_word_embeddings": False}, {}),
}


def assert_same_logits(ours: Transformer, theirs: Any, tolerance: float = 2e-5) -> None:
    tokens = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = theirs(tokens).logits
        found = ours(tokens)
    assert expected.std() > 0.1
    assert (found - expected).abs().max() < tolerance * expected.abs().max()


@pytest.mark.parametrize("name", CASES)
def test_same_logits_as_the_model_that_was_written(tmp_path: Path, name: str) -> None:
    architecture, reordered, changes, keys = CASES[name]
    reference = make_reference(architecture, **changes)
    path = make_gguf(tmp_path / "model.gguf", reference, architecture, reordered=reordered, keys=keys)
    model = read_gguf(path, tokenizer=False)
    assert model.tokenizer is None
    assert model.config.tied_embeddings == reference.config.tie_word_embeddings
    assert model.config.norm.epsilon == reference.config.rms_norm_eps
    assert_same_logits(model, reference)


# transformers does not read the width of a head; 128 is what it takes for qwen3
@pytest.mark.parametrize(
    ("architecture", "reordered", "head"), [("llama", True, 16), ("qwen2", False, 16), ("qwen3", False, 128)]
)
@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0", "Q5_1"])
def test_same_logits_as_transformers_reading_the_file(
    tmp_path: Path, architecture: str, reordered: bool, head: int, kind: str
) -> None:
    reference = make_reference(architecture, tie_word_embeddings=False, head_dim=head)
    used = gguf.GGMLQuantizationType[kind]
    keys = {f"{architecture}.vocab_size": 96}
    path = make_gguf(tmp_path / "model.gguf", reference, architecture, reordered=reordered, kind=used, keys=keys)
    peer = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    assert_same_logits(read_gguf(path, tokenizer=False), peer)


def test_llama3_scaling_from_the_divisors(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    reference = make_reference("llama", rope_parameters=rope, head_dim=64, max_position_embeddings=32768)
    turns = 8192 * 500_000.0 ** -(np.arange(0, 64, 2) / 64) / (2 * np.pi)  # in 8192 positions
    share = np.clip((turns - 1) / (4 - 1), 0, 1)
    divisors = (1 / ((1 - share) / 8 + share)).astype(np.float32)  # what llama.cpp's converter stores
    assert ((divisors > 1.01) & (divisors < 7.99)).any()
    path = tmp_path / "model.gguf"
    make_gguf(path, reference, "llama", reordered=True, extra={"rope_freqs.weight": divisors})
    model = read_gguf(path, tokenizer=False)
    assert_same_logits(model, reference)
    tokens, positions = torch.arange(8)[None], torch.arange(20_000, 20_008)[None]
    with torch.no_grad():
        expected = reference(tokens, position_ids=positions).logits
        assert (model(tokens, positions) - expected).abs().max() < 1e-4 * expected.abs().max()
    make_gguf(path, reference, "llama", reordered=True, extra={"rope_freqs.weight": np.sqrt(divisors)})
    with pytest.raises(ArtifactError, match="not the scaling of Llama 3"):
        read_gguf(path, tokenizer=False)


def test_weights_are_read_when_they_are_used(tmp_path: Path) -> None:
    reference = make_reference("llama")
    path = make_gguf(tmp_path / "model.gguf", reference, "llama", reordered=True)
    stored = open_gguf(path, tokenizer=False)
    expected = reference.state_dict()["model.layers.1.self_attn.k_proj.weight"]
    found = stored.parameters.rows("blocks.1.mixer.query_key_value.weight", 64 + 5, 64 + 9)
    assert torch.equal(found, expected[5:9])


def refused(tmp_path: Path, message: str, keys: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
    path = make_gguf(tmp_path / "model.gguf", make_reference("llama"), "llama", reordered=True, keys=keys, extra=extra)
    with pytest.raises(ArtifactError, match=message) as caught:
        read_gguf(path, tokenizer=False)
    assert str(path) in str(caught.value) and "fix:" in str(caught.value)


def test_what_is_not_understood_is_listed(tmp_path: Path) -> None:
    refused(
        tmp_path,
        r"llama.attention.sliding_window = 16, llama.logit_scale = 0.25",
        {"llama.attention.sliding_window": 16, "llama.logit_scale": 0.25},
    )
    refused(tmp_path, "llama.expert_group_count = 8", {"llama.expert_group_count": 8})
    refused(tmp_path, "not those of a mixtral model.*missing: blk.0.ffn_gate_inp.weight", {"llama.expert_count": 8})
    refused(tmp_path, "llama.rope.dimension_count = 8", {"llama.rope.dimension_count": 8})
    refused(tmp_path, "llama.vocab_size = 7", {"llama.vocab_size": 7})
    stray = {"blk.0.ffn_gate_inp.weight": np.zeros((4, 64), np.float32), "odd": np.zeros(4, np.float32)}
    refused(tmp_path, r"not understood: blk.0.ffn_gate_inp.weight, odd", {}, stray)
    refused(
        tmp_path, r"not understood: blk.4.attn_norm.weight", {}, {"blk.4.attn_norm.weight": np.zeros(64, np.float32)}
    )


def test_missing_parts(tmp_path: Path) -> None:
    reference = make_reference("llama")
    path = make_gguf(tmp_path / "model.gguf", reference, "mamba", reordered=True)
    with pytest.raises(ArtifactError, match="unknown architecture 'mamba'"):
        read_gguf(path)
    make_gguf(path, reference, "qwen3", reordered=False)
    with pytest.raises(ArtifactError, match=r"missing: blk.0.attn_q_norm.weight"):
        read_gguf(path)
    make_gguf(path, reference, "llama", reordered=True)
    with pytest.raises(ArtifactError, match="a tokenizer of the kind None"):
        read_gguf(path)


def test_absurd_numbers_build_nothing(tmp_path: Path) -> None:
    whole = make_gguf(tmp_path / "model.gguf", make_reference("llama"), "llama", reordered=True).read_bytes()
    for key in (
        "block_count",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.key_length",
    ):
        place = whole.index(f"llama.{key}".encode()) + len(f"llama.{key}") + 4
        for number in (0, 3, 2**20, 2**32 - 1):
            (tmp_path / "odd.gguf").write_bytes(whole[:place] + struct.pack("<I", number) + whole[place + 4 :])
            with pytest.raises(ArtifactError) as caught:
                read_gguf(tmp_path / "odd.gguf", tokenizer=False)
            assert "odd.gguf" in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 900), content=st.binary(min_size=1, max_size=5))
def test_a_damaged_head_is_an_error_or_a_model(tmp_path: Path, place: int, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    if not path.exists():
        make_gguf(path, make_reference("llama", num_hidden_layers=1), "llama", reordered=True)
    whole = path.read_bytes()
    (tmp_path / "odd.gguf").write_bytes(whole[:place] + content + whole[place + len(content) :])
    with contextlib.suppress(ArtifactError):
        read_gguf(tmp_path / "odd.gguf", tokenizer=False)
