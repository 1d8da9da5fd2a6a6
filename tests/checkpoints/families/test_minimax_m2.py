"""MiniMax-M2 against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import MiniMaxM2Config

from tests.checkpoints.families.harness import TINY, YARN, check


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rotary_dim": 4, "num_attention_heads": 3, "num_key_value_heads": 1, "tie_word_embeddings": True},
        {"head_dim": 10, "partial_rotary_factor": 0.6, "num_local_experts": 8, "num_experts_per_tok": 8},
        {"rope_parameters": YARN, "num_key_value_heads": 6},
    ],
)
def test_minimax_m2(changes: dict[str, Any]) -> None:
    small = {"head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20}
    check(MiniMaxM2Config(**(TINY | small | changes)))
