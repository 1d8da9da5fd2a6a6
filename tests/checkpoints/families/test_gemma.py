"""Gemma 2 and Gemma 3 (text) against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import Gemma2Config, Gemma3TextConfig

from tests.checkpoints.families.harness import LINEAR, TINY, check

SMALL = TINY | {"head_dim": 8}


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 5},
        {
            "sliding_window": 40,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 10,
            "attention_bias": True,
        },
        {
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 2.0,
            "query_pre_attn_scalar": 8,
            "sliding_window": 6,
        },
        {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False},
        {"layer_types": ["full_attention"] * 3, "hidden_activation": "gelu"},
    ],
)
def test_gemma2(changes: dict[str, Any]) -> None:
    check(Gemma2Config(**(SMALL | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 7, "sliding_window": 5},
        {
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "sliding_window": 40,
            "head_dim": 10,
        },
        {
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 6,
            "rope_parameters": {
                "full_attention": LINEAR,
                "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
            },
            "query_pre_attn_scalar": 24,
            "attention_bias": True,
        },
        {"final_logit_softcapping": 2.0, "tie_word_embeddings": False, "num_key_value_heads": 6},
    ],
)
def test_gemma3(changes: dict[str, Any]) -> None:
    check(Gemma3TextConfig(**(SMALL | changes)))
