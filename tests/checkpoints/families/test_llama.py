"""Llama, Qwen 2, Qwen 3, SmolLM 3 against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import LlamaConfig, Qwen2Config, Qwen3Config, SmolLM3Config

from tests.checkpoints.families.harness import LINEAR, LLAMA3, TINY, YARN, check


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True},
        {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
        {"rope_parameters": LINEAR, "head_dim": 10},
        {"rope_parameters": YARN | {"truncate": False}, "num_key_value_heads": 6, "hidden_act": "gelu"},
    ],
)
def test_llama(changes: dict[str, Any]) -> None:
    check(LlamaConfig(**(TINY | changes)))


@pytest.mark.parametrize(
    "changes",
    [{}, {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "tie_word_embeddings": True}],
)
def test_qwen2(changes: dict[str, Any]) -> None:
    check(Qwen2Config(**(TINY | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 10},
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1, "attention_bias": True},
    ],
)
def test_qwen3(changes: dict[str, Any]) -> None:
    check(Qwen3Config(**(TINY | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 5},
        {"no_rope_layers": [1, 0, 1], "rope_parameters": YARN, "attention_bias": True, "mlp_bias": True},
        {"no_rope_layers": [0, 1, 0], "use_sliding_window": True, "sliding_window": 6, "tie_word_embeddings": False},
    ],
)
def test_smollm3(changes: dict[str, Any]) -> None:
    check(SmolLM3Config(**(TINY | changes)))
