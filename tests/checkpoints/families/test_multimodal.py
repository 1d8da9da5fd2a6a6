"""The language model inside a multimodal checkpoint: text logits against transformers, images left out and said so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    DeepseekV3Config,
    Gemma3Config,
    Gemma3TextConfig,
    Kimi_K25Config,
    Llama4Config,
    Llama4TextConfig,
    PretrainedConfig,
)

from ingot.checkpoints.checkpoint import load_model
from tests.checkpoints.families.harness import relative
from tests.checkpoints.families.test_deepseek import TINY as LATENT

TINY: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
VISION: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}


def kimi() -> PretrainedConfig:
    text = DeepseekV3Config(**LATENT, n_group=1, topk_group=1)
    return Kimi_K25Config(text_config=text.to_dict(), vision_config=VISION, tie_word_embeddings=False)


def gemma() -> PretrainedConfig:
    text = Gemma3TextConfig(**TINY, sliding_window=6, query_pre_attn_scalar=12)
    return Gemma3Config(text_config=text.to_dict(), vision_config=VISION | {"image_size": 28, "patch_size": 14})


def llama() -> PretrainedConfig:
    text = Llama4TextConfig(**TINY, intermediate_size_mlp=64, num_local_experts=4, attention_chunk_size=8)
    vision = VISION | {"image_size": 28, "patch_size": 14, "vision_output_dim": 32, "projector_input_dim": 32}
    return Llama4Config(text_config=text.to_dict(), vision_config=vision | {"projector_output_dim": 32})


@pytest.mark.parametrize(
    ("config", "text_type"), [(kimi, "deepseek_v3"), (gemma, "gemma3_text"), (llama, "llama4_text")]
)
def test_the_language_model_inside(config: Any, text_type: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    settings = config()
    settings._attn_implementation = "eager"
    peer = AutoModelForImageTextToText.from_config(settings, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    peer.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"left out: \d+ tensors that are not of the language model"):
        model = load_model(tmp_path)
    tokens = torch.randint(1, 60, (2, 21), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs = peer(input_ids=tokens).logits
        assert relative(model(tokens), theirs) < 2e-5
    assert model.config.export_as == text_type
