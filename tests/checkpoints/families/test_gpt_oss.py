"""gpt-oss against transformers."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import GptOssConfig

from tests.checkpoints.families.harness import TINY, YARN, check


@pytest.mark.parametrize(
    "changes",
    [
        {"sliding_window": 5},
        {"sliding_window": 40, "rope_parameters": YARN | {"truncate": False}, "swiglu_limit": 0.5},
        {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "tie_word_embeddings": True},
        {
            "attention_bias": False,
            "layer_types": ["full_attention"] * 3,
            "rope_parameters": YARN,
            "num_experts_per_tok": 5,
        },
    ],
)
def test_gpt_oss(changes: dict[str, Any]) -> None:
    small = {"head_dim": 8, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 20}
    check(GptOssConfig(**(TINY | small | changes)))
