"""OLMoE against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import OlmoeConfig

from tests.checkpoints.families.harness import TINY, check


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_topk_prob": True, "num_attention_heads": 3, "num_key_value_heads": 1, "attention_bias": True},
        {"num_experts": 8, "num_experts_per_tok": 8, "tie_word_embeddings": True, "num_key_value_heads": 6},
    ],
)
def test_olmoe(changes: dict[str, Any]) -> None:
    check(OlmoeConfig(**(TINY | {"num_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20} | changes)))
